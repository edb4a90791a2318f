-- Grants the mutex KEYS[1] to one owner with a range of tokens, or says why it cannot.
--
-- Promises: those of mutex_acquire; nobody else gets a token of the range.
--
-- ARGV: those of mutex_acquire, how many tokens to reserve after the first
-- Reply: {GRANTED, token, how many are reserved} · else lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local token, spare = token_range(ARGV[5], tonumber(ARGV[4]), tonumber(ARGV[6]))
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {GRANTED, token, spare}
end
