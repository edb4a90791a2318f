-- Grants the mutex KEYS[1] to one owner, or says who is in the way.
--
-- Promises: asked twice by one owner it gives the same hold, once; asked after its time it changes nothing; a lease is
-- never shortened; the token is larger than any that this server gave out, also after it forgot its counter.
--
-- ARGV: owner, lease in ms, latest time in µs of this server's clock, smallest token
-- Reply: {1, token} granted · {0, ms} busy, the holder's lease ends in ms · {-1} late · {-2} another kind · {-3} a key without a lease

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
if micros > tonumber(ARGV[3]) then
  return {-1}
end

local lease = tonumber(ARGV[2])
local mine = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
if mine then
  lease = math.max(lease, redis.call('PTTL', KEYS[1]))
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
    return {-2}
  end
  local left = redis.call('PTTL', KEYS[1])
  if left == -1 then
    return {-3}
  end
  return {0, left}
end

local last = tonumber(redis.call('GET', 'lockkeeper:token') or 0)
local token = math.max(last + 1, micros, tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], lease)
redis.call('SET', 'lockkeeper:token', token)
return {1, token}
