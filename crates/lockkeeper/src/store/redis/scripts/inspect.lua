-- Tells all about KEYS[1] at one moment, and changes nothing.
--
-- Reply: {type, lease left in ms, our mark of its kind, a hash's fields and values or a string's value, places in the fair queue with ms
--         left, waiting writers with since and ms left, readers with ms left, permits with ms left, permits that ended}

local kind = redis.call('TYPE', KEYS[1]).ok
local value, places, writers, reads, permits = {}, {}, {}, {}, {}
if kind == 'hash' then
  value = redis.call('HGETALL', KEYS[1])
  for i = 1, #value, 2 do
    if value[i] ~= 'mode' and string.sub(value[i], -6) ~= ':write' then
      reads[#reads + 1] = value[i]
      reads[#reads + 1] = redis.call('PTTL', tagged .. ':' .. value[i] .. ':rwlock_timeout:1')
    end
  end
elseif kind == 'string' then
  value = {redis.call('GET', KEYS[1])}
  local out = redis.call('ZRANGEBYSCORE', tagged .. ':timeout', millis + 1, '+inf', 'WITHSCORES')
  for i = 1, #out, 2 do
    permits[i] = out[i]
    permits[i + 1] = tonumber(out[i + 1]) - millis
  end
end
for _, owner in ipairs(redis.call('LRANGE', 'redisson_lock_queue:' .. tagged, 0, -1)) do
  -- Ours end with their last sign of life, Java's with their score.
  local ends = redis.call('ZSCORE', 'lockkeeper:fair:' .. tagged, owner)
  ends = tonumber(ends or redis.call('ZSCORE', 'redisson_lock_timeout:' .. tagged, owner) or 0)
  places[#places + 1] = owner
  places[#places + 1] = ends - millis
end
local waiting = redis.call('HGETALL', 'lockkeeper:pending:' .. tagged)
for i = 1, #waiting, 2 do
  local since, ends = string.match(waiting[i + 1], '^(%d+) (%d+)$')
  writers[#writers + 1] = waiting[i]
  writers[#writers + 1] = tonumber(since)
  writers[#writers + 1] = tonumber(ends) - millis
end
local ended = kind == 'string' and redis.call('ZCOUNT', tagged .. ':timeout', '-inf', millis) or 0
local mark = redis.call('GET', 'lockkeeper:kind:' .. tagged) or ''
return {kind, redis.call('PTTL', KEYS[1]), mark, value, places, writers, reads, permits, ended}
