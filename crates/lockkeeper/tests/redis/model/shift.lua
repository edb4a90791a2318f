-- Lets time pass for all that lies under a name: whatever ends, ends so many ms sooner.
-- KEYS[1]: the name, in braces unless it has one
-- ARGV: ms, then all keys of the name that may expire

local by, tagged = tonumber(ARGV[1]), KEYS[1]
for _, key in ipairs({'redisson_lock_timeout:' .. tagged, 'lockkeeper:fair:' .. tagged, tagged .. ':timeout'}) do
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZINCRBY', key, -by, member)
  end
end
local pending = 'lockkeeper:pending:' .. tagged
local marks = redis.call('HGETALL', pending)
for i = 1, #marks, 2 do
  local since, ends = string.match(marks[i + 1], '^(%d+) (%d+)$')
  redis.call('HSET', pending, marks[i], string.format('%.0f %.0f', since - by * 1000, ends - by))
end
for i = 2, #ARGV do
  local left = redis.call('PTTL', ARGV[i])
  if left > by then
    redis.call('PEXPIRE', ARGV[i], left - by)
  elseif left >= 0 then
    redis.call('DEL', ARGV[i])
  end
end
