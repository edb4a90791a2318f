-- Grants a share of the read-write lock KEYS[1] to one owner.
--
-- Promises: asked twice by one owner it gives the same hold, once; asked after its time it changes nothing; a lease is never shortened;
-- the holder that writes gets it while it writes; a reader yields to writers that waited before it came, and to no others.
--
-- ARGV: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens, since when it waits in µs, field of
-- the writer that lets it in
-- Reply: lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local owner, lease = ARGV[1], tonumber(ARGV[2])
local mode = redis.pcall('HGET', KEYS[1], 'mode')
if type(mode) == 'table' or not mode and redis.call('EXISTS', KEYS[1]) == 1 then
  return refused()
end
local key = hold_key(owner, 1)
local left = redis.call('PTTL', key)
if left < 0 then
  if mode == 'write' and redis.call('HEXISTS', KEYS[1], owner .. ':write') == 0
    and redis.call('HEXISTS', KEYS[1], ARGV[7]) == 0 then
    return {BUSY, redis.call('PTTL', KEYS[1]), -1}
  end
  if mode ~= 'write' then
    local blocked = 0
    local waiting = redis.call('HGETALL', 'lockkeeper:pending:' .. tagged)
    for i = 1, #waiting, 2 do
      local since, ends = string.match(waiting[i + 1], '^(%d+) (%d+)$')
      if waiting[i] ~= owner and tonumber(since) <= tonumber(ARGV[6]) then
        blocked = math.max(blocked, tonumber(ends) - millis)
      end
    end
    if blocked > 0 then
      return {BUSY, blocked, -1}
    end
  end
end
lease = math.max(lease, left)
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
redis.call('HSET', KEYS[1], owner, 1)
redis.call('SET', key, 1, 'PX', lease)
redis.call('PEXPIRE', KEYS[1], math.max(lease, redis.call('PTTL', KEYS[1])))
return {GRANTED, next_token(ARGV[5], tonumber(ARGV[4]))}
