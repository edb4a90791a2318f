-- Takes the mutex KEYS[1] from one owner and grants it to its successor, or notifies those who wait if the successor cannot have it.
--
-- Promises: those of mutex_release and mutex_acquire; nobody else can come in between.
--
-- ARGV: owner, channel; of the successor: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens
-- Reply: {1 released or 0 not held, then of the successor as lib/answers}

local held, late = taken(ARGV[1]), micros > tonumber(ARGV[5])
local left = redis.call('PTTL', KEYS[1])
if left == -2 and not late then
  local token = next_token(ARGV[7], tonumber(ARGV[6]))
  redis.call('HSET', KEYS[1], ARGV[3], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return {held, GRANTED, token}
end
