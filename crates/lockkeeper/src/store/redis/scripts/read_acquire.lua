-- Grants a share of the read-write lock KEYS[1] to one owner.
--
-- Promises: asked twice by one owner it gives the same hold, once; asked after its time it changes nothing; a lease is never shortened;
-- an owner that writes may read while it writes; a reader yields to writers that waited before it came, and to no others; a hash that
-- is no read-write lock is not touched; the hash outlives every hold in it.
--
-- Redisson's readers do not yield. While they keep a writer out that has waited for a second, ours yield from then for a quarter of a
-- second only, from two seconds on for half a second, from four on for a second, and so on: enough for the writer to come in through a
-- gap that Redisson leaves, however long our reads last, and not for nothing the rest of the time.
--
-- ARGV: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens, since when it waits in µs, field of
-- the writer that lets it in
-- Reply: lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local owner, lease, left = ARGV[1], tonumber(ARGV[2]), -2
local mode = redis.pcall('HGET', KEYS[1], 'mode')
if type(mode) == 'table' or not mode and redis.call('EXISTS', KEYS[1]) == 1 then
  return refused()
elseif mode then
  left = redis.call('PTTL', KEYS[1])
  if hash_kind(left) ~= 'rwlock' then
    return refused()
  end
end
local key, pending, ended = hold_key(owner, 1), 'lockkeeper:pending:' .. tagged, {}
-- A hold is a field and a key: the key alone may have outlived a hash that was deleted.
local mine = mode and redis.call('HEXISTS', KEYS[1], owner) == 1 and redis.call('PTTL', key) or -2
if mine < 0 then
  if mode == 'write' and redis.call('HEXISTS', KEYS[1], owner .. ':write') == 0
    and redis.call('HEXISTS', KEYS[1], ARGV[7]) == 0 then
    return {BUSY, left, -1}
  end
  if mode ~= 'write' then
    local blocked, oldest = 0, micros
    local waiting = redis.call('HGETALL', pending)
    for i = 1, #waiting, 2 do
      local since, ends = string.match(waiting[i + 1], '^(%d+) (%d+)$')
      if tonumber(ends) <= millis and #ended < 1000 then
        ended[#ended + 1] = waiting[i]
      elseif waiting[i] ~= owner and tonumber(since) <= tonumber(ARGV[6]) then
        blocked = math.max(blocked, tonumber(ends) - millis)
        oldest = math.min(oldest, tonumber(since))
      end
    end
    if blocked > 0 and mode and is_read_by_others() then
      local waited, period = math.floor((micros - oldest) / 1000), 1000
      while 2 * period <= waited do
        period = 2 * period
      end
      local pause = math.floor(1.25 * period) - waited
      blocked = pause > 0 and math.min(blocked, pause) or 0
    end
    if blocked > 0 then
      return {BUSY, blocked, -1}
    end
  end
end
lease = math.max(lease, mine)
local token = next_token(ARGV[5], tonumber(ARGV[4]))
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
redis.call('HSET', KEYS[1], owner, '1')
-- The hold first: the hash ends with it or later.
redis.call('SET', key, OURS, 'PX', ms(lease))
outlast(left, lease)
if #ended > 0 then
  redis.call('HDEL', pending, unpack(ended))
end
return {GRANTED, token}
