-- Tells all about KEYS[1] at one moment, and changes nothing.
--
-- Reply: {what it is as lib/kind says, our mark of its kind, lease left in ms, a hash's fields or a string's number, places in the fair
--         queue with ms left, waiting writers with since and ms left, readers with ms left, permits with ms left, permits that ended; of what is no lock its type}

local kind, marked_kind = found_kind()
local value, places, writers, reads, permits, ended = {}, {}, {}, {}, {}, 0
if kind == 'foreign' then
  return {kind, '', -1, value, places, writers, reads, permits, TYPES[redis.call('TYPE', KEYS[1]).ok] or 0}
elseif kind == 'mutex' or kind == 'rwlock' then
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    local field = fields[i]
    if kind == 'rwlock' and is_hold(field, fields[i + 1]) then
      reads[#reads + 1] = field
      -- As PTTL tells it; negative: dead.
      reads[#reads + 1] = reader_left(field, fields[i + 1]) - 1
    elseif field ~= 'mode' then
      value[#value + 1] = field
    end
  end
elseif kind ~= 'none' then
  value = {redis.call('GET', KEYS[1])}
  local out = redis.call('ZRANGEBYSCORE', tagged .. ':timeout', millis + 1, '+inf', 'WITHSCORES')
  for i = 1, #out, 2 do
    permits[i] = out[i]
    permits[i + 1] = tonumber(out[i + 1]) - millis
  end
  ended = redis.call('ZCOUNT', tagged .. ':timeout', '-inf', millis)
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
return {kind, marked_kind or '', redis.call('PTTL', KEYS[1]), value, places, writers, reads, permits, ended}
