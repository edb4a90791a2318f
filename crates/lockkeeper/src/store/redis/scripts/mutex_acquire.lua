-- Grants the mutex KEYS[1] to one owner, or says why it cannot.
--
-- Promises: asked twice by one owner it gives the same hold, once; asked after its time it changes nothing; a lease is never
-- shortened; the token is larger than any that this server gave out, also after it lost its counter; what is no mutex is not touched.
--
-- ARGV: owner, lease in ms, latest time in µs of this server's clock, smallest token, the key that counts tokens
-- Reply: lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local token = next_token(ARGV[5], tonumber(ARGV[4]))
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {GRANTED, token}
end
