-- Gives permits of the semaphore KEYS[1] to one owner, all that it asks for or none.
--
-- Promises: asked twice for the same permits it gives them once; asked after its time it changes nothing; a lease is never shortened;
-- permits whose lease ended are given out again; never more are out than there are.
--
-- ARGV: lease in ms, latest time in µs, how many there are in all, the ids of the permits …
-- Reply: lib/answers; WRONG_SIZE with how many there are in all; WRONG_COUNT with how many may be taken

if micros > tonumber(ARGV[2]) then
  return {LATE}
end
if not is_number('semaphore') then
  return refused()
end
local total, take = tonumber(ARGV[3]), #ARGV - 3
if take < 1 or take > total then
  return {WRONG_COUNT, total}
end
local free, ends = reclaim(), millis + tonumber(ARGV[1])
if not free then
  free = total
  redis.call('SET', KEYS[1], free)
end
local size = free + redis.call('ZCOUNT', given, '(' .. string.format('%.0f', millis), '+inf')
if size ~= total then
  return {WRONG_SIZE, size}
end
local score = redis.call('ZSCORE', given, ARGV[4])
if score then
  ends = math.max(ends, tonumber(score))
elseif free < take then
  local first = redis.call('ZRANGE', given, 0, 0, 'WITHSCORES')
  return {BUSY, first[2] and tonumber(first[2]) - millis or -1, -1}
else
  redis.call('DECRBY', KEYS[1], take)
  -- Java may have made it, and Java leaves no mark.
  marked('semaphore')
end
for i = 4, #ARGV do
  redis.call('ZADD', given, ends, ARGV[i])
end
return {GRANTED, 0}
