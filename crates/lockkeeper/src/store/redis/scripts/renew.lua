-- Keeps the mutexes KEYS for their owners, or only looks whether they still have them.
--
-- Promises: one that fails does not touch the others; a lease is never shortened; passes on a server that is out of memory.
--
-- ARGV: per key its owner and its lease in ms (0 only looks)
-- Reply: per key 1 held · 0 not held by this owner · or its error

local replies = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('HEXISTS', key, ARGV[2 * i - 1])
  local lease = tonumber(ARGV[2 * i])
  if held == 1 and lease > 0 and redis.call('PTTL', key) < lease then
    redis.call('PEXPIRE', key, lease)
  end
  if type(held) == 'table' then
    held = held.err
  end
  replies[i] = held
end
return replies
