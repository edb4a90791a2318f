-- Takes the mutex KEYS[1] from one owner and grants it to its successor, or notifies those who wait if the successor cannot have it.
--
-- Promises: those of mutex_release and mutex_acquire; nobody else can come in between.
--
-- ARGV: owner, channel; of the successor: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens
-- Reply: {1 released or 0 not held, then of the successor as lib/answers}

local late = micros > tonumber(ARGV[5])
local held = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if held == 1 and not late then
  -- The first write takes no memory: a script that has written may write on when memory is out. The hash is never empty: the server that a slot
  -- leaves does not make again what is gone.
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  local token = next_token(ARGV[7], tonumber(ARGV[6]))
  redis.call('HSET', KEYS[1], ARGV[3], '1')
  redis.call('HDEL', KEYS[1], ARGV[1])
  return {1, GRANTED, token}
end
held = taken(ARGV[1])
local left = redis.pcall('PTTL', KEYS[1])
if left == -2 and not late then
  local token = next_token(ARGV[7], tonumber(ARGV[6]))
  redis.call('HSET', KEYS[1], ARGV[3], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return {held, GRANTED, token}
end
