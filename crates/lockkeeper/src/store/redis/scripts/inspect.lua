-- Tells all about KEYS[1] at one moment, and changes nothing.
--
-- Promises: who holds and who waits is read at one moment, with one call for all of them. How long each lasts takes a call per hold: one
-- script tells it for about MOST holds and MOST places, so that none keeps the server for long. The caller asks for the rest.
--
-- ARGV: nothing · or, to ask for the rest: how many words follow for fields and counts, these words, waiters in the fair queue
-- Reply: {what it is as lib/kind says, our mark of its kind, lease left in ms, a hash's fields or a string's number, places in the fair
--         queue with ms left, waiting writers with since and ms left, readers with ms left, permits with ms left, permits that ended; of what is no lock its type,
--         the rest: fields and counts, waiters in the fair queue}

local MOST, WINDOW = 1000, 500
local kind, marked_kind
local value, places, writers, reads, permits, ended = {}, {}, {}, {}, {}, 0
local fields, waiters, more_fields, more_waiters = {}, {}, {}, {}
if ARGV[1] then
  kind = 'rwlock'
  local words = tonumber(ARGV[1])
  for i = 2, #ARGV do
    local list = i <= words + 1 and fields or waiters
    list[#list + 1] = ARGV[i]
  end
else
  kind, marked_kind = found_kind()
  if kind == 'foreign' then
    return {kind, '', -1, value, places, writers, reads, permits, TYPES[redis.call('TYPE', KEYS[1]).ok] or 0, {}, {}}
  elseif kind == 'mutex' or kind == 'rwlock' then
    fields = redis.call('HGETALL', KEYS[1])
  elseif kind ~= 'none' then
    value = {redis.call('GET', KEYS[1])}
    local out = redis.call('ZRANGEBYSCORE', tagged .. ':timeout', millis + 1, '+inf', 'WITHSCORES')
    for i = 1, #out, 2 do
      permits[i] = out[i]
      permits[i + 1] = tonumber(out[i + 1]) - millis
    end
    ended = redis.call('ZCOUNT', tagged .. ':timeout', '-inf', millis)
  end
  waiters = redis.call('LRANGE', 'redisson_lock_queue:' .. tagged, 0, -1)
  local waiting = redis.call('HGETALL', 'lockkeeper:pending:' .. tagged)
  for i = 1, #waiting, 2 do
    local since, ends = string.match(waiting[i + 1], '^(%d+) (%d+)$')
    writers[#writers + 1] = waiting[i]
    writers[#writers + 1] = tonumber(since)
    writers[#writers + 1] = tonumber(ends) - millis
  end
end
local at, work = 1, 0
while at < #fields and work < MOST do
  local field, count = fields[at], fields[at + 1]
  work = work + 1
  if kind == 'rwlock' and is_hold(field, count) then
    reads[#reads + 1] = field
    -- As PTTL tells it; negative: dead.
    reads[#reads + 1] = reader_left(field, count) - 1
    -- A reader may have many holds.
    work = work + tonumber(count) - 1
  elseif field ~= 'mode' then
    value[#value + 1] = field
  end
  at = at + 2
end
for i = at, #fields do
  more_fields[#more_fields + 1] = fields[i]
end
for first = 1, math.min(#waiters, MOST), WINDOW do
  local some = {unpack(waiters, first, math.min(first + WINDOW - 1, #waiters))}
  -- Ours end with their last sign of life, Java's with their score.
  local signs = redis.call('ZMSCORE', 'lockkeeper:fair:' .. tagged, unpack(some))
  for i, owner in ipairs(some) do
    local ends = tonumber(signs[i] or redis.call('ZSCORE', 'redisson_lock_timeout:' .. tagged, owner) or 0)
    places[#places + 1] = owner
    places[#places + 1] = ends - millis
  end
end
for i = MOST + 1, #waiters do
  more_waiters[#more_waiters + 1] = waiters[i]
end
return {
  kind, marked_kind or '', redis.call('PTTL', KEYS[1]), value, places, writers, reads, permits, ended, more_fields, more_waiters,
}
