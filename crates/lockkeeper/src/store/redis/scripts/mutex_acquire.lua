-- Grants the mutex KEYS[1] to one owner, or says who is in the way.
--
-- Promises: asked twice by one owner it gives the same hold, once; asked after its time it changes nothing; a lease is never
-- shortened; the token is larger than any that this server gave out, also after it forgot its counter.
--
-- ARGV: owner, lease in ms, latest time in µs of this server's clock, smallest token
-- Reply: lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local lease = tonumber(ARGV[2])
local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then
  return refused()
elseif mine == 1 then
  lease = math.max(lease, redis.call('PTTL', KEYS[1]))
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return held_by_others(-1)
end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], lease)
return {GRANTED, next_token(tonumber(ARGV[4]))}
