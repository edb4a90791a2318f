-- Tells all about KEYS[1] at one moment, and changes nothing.
--
-- Reply: {type, lease left in ms, fields and values of a hash}

local kind = redis.call('TYPE', KEYS[1]).ok
local fields = {}
if kind == 'hash' then
  fields = redis.call('HGETALL', KEYS[1])
end
return {kind, redis.call('PTTL', KEYS[1]), fields}
