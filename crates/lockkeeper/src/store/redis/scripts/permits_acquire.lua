-- Gives permits of the semaphore KEYS[1] to one owner, all that it asks for or none.
--
-- Promises: asked twice for the same permits it gives them once; asked after its time it changes nothing; a lease is never shortened;
-- permits whose lease ended are given out again; never more are out than there are; a number that was deleted comes back with the size
-- asked for, less the permits that are out.
--
-- ARGV: lease in ms, latest time in µs, size, `1` to use the size that is there (`0`: refuse another), the ids of the permits …
-- Reply: lib/answers; WRONG_SIZE and WRONG_COUNT with the size

if micros > tonumber(ARGV[2]) then
  return {LATE}
end
if not is_number('semaphore') then
  return refused()
end
local take, ends = #ARGV - 4, millis + tonumber(ARGV[1])
local free, ended = free_permits()
local out = redis.call('ZCARD', given) - ended
local size = free and free + out or tonumber(ARGV[3])
if size ~= tonumber(ARGV[3]) and ARGV[4] == '0' then
  return {WRONG_SIZE, size}
end
local score = take > 0 and redis.call('ZSCORE', given, ARGV[5])
local again = score and tonumber(score) > millis
if take < 1 or take > size and not (again and ARGV[4] == '1') then
  return {WRONG_COUNT, size}
end
if not free then
  free = size - out
  redis.call('SET', KEYS[1], free)
  reclaim(nil, ended)
else
  reclaim(free, ended)
end
if again then
  ends = math.max(ends, tonumber(score))
elseif free < take then
  local first = redis.call('ZRANGEBYSCORE', given, '(' .. string.format('%.0f', millis), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return {BUSY, first[2] and tonumber(first[2]) - millis or -1, -1}
else
  redis.call('DECRBY', KEYS[1], take)
end
for i = 5, #ARGV do
  redis.call('ZADD', given, ends, ARGV[i])
end
if not again then
  -- Java may have made it, and Java leaves no mark.
  marked('semaphore')
end
return {GRANTED, 0}
