-- Takes permits of the semaphore KEYS[1] back and notifies those who wait.
--
-- Promises: takes back only these; passes on a server that is out of memory; permits whose lease ended count as not held; a number that
-- was deleted is not made anew, for its size is not known here.
--
-- ARGV: channel, the ids of the permits …
-- Reply: {1 released or 0 not held, how many were woken}

local held, back = 0, 0
for i = 2, #ARGV do
  local score = redis.call('ZSCORE', given, ARGV[i])
  if score then
    redis.call('ZREM', given, ARGV[i])
    back = back + 1
    if tonumber(score) > millis then
      held = 1
    end
  end
end
if back == 0 or redis.call('EXISTS', KEYS[1]) == 0 then
  return {held, 0}
end
local free = redis.pcall('INCRBY', KEYS[1], back)
return {held, type(free) == 'number' and tell(ARGV[1], free) or 0}
