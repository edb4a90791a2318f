-- Takes permits of the semaphore KEYS[1] back and wakes those who wait.
--
-- Promises: takes back only these; passes on a server that is out of memory; ones whose lease ended count as not held.
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
return {held, back > 0 and tell(ARGV[1], redis.call('INCRBY', KEYS[1], back)) or 0}
