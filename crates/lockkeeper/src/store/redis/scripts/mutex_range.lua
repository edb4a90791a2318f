-- Grants the mutex KEYS[1] to one owner with a range of tokens, or says why it cannot. On request it registers the owner's client among those that
-- wait and are woken in turn.
--
-- Promises: those of mutex_acquire; nobody else gets a token of the range; a client registers once, and keeps its place.
--
-- ARGV: those of mutex_acquire, how many tokens to reserve after the first, whether to register: NO; LAST or FIRST if it is not granted; ONLY, and
-- do not grant it
-- Reply: {GRANTED, token, how many are reserved} · else lib/answers

local NO, FIRST, ONLY = '0', '2', '3'
if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local left = redis.call('PTTL', KEYS[1])
if left == -2 and ARGV[7] ~= ONLY then
  local token, spare = token_range(ARGV[5], tonumber(ARGV[4]), tonumber(ARGV[6]))
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if ARGV[7] ~= NO then
    -- Granted before its turn: it does not wait any more, so its registration goes.
    redis.pcall('ZREM', waiting_for(KEYS[1]), client_of(ARGV[1]))
  end
  return {GRANTED, token, spare}
end
