-- Takes the mutex KEYS[1] from whoever has it, wakes those who wait, and tells whom it took it from.
--
-- ARGV: channel
-- Reply: {lease left in ms, fields and values} as they were; empty fields: nobody had it. A read-write lock is left alone.

local left = redis.call('PTTL', KEYS[1])
local fields = redis.call('HGETALL', KEYS[1])
if #fields == 0 or redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return {left, {}}
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[1], '0')
return {left, fields}
