-- Moves the mutex KEYS[1] from one owner to another one of the same client if nobody else waits; else takes it from the owner and notifies those
-- who wait.
--
-- Promises: those of mutex_release; only what the owner held is granted, so a copy that arrives late or twice finds the owner gone and grants
-- nothing; where it cannot be told whether others wait, it is released.
--
-- ARGV: owner, channel, how many subscriptions of this client the channel has; of the successor: owner, lease in ms, latest time in µs, the key
-- that counts tokens, how many tokens to reserve after the first
-- Reply: {1 released or 0 not held, how many were woken: lib/wake} · {1 moved or 0 moved before, GRANTED, token, how many are reserved}

local function others_wait()
  local subscribed = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])
  if type(subscribed) ~= 'table' or type(subscribed[2]) ~= 'number' or subscribed[2] > tonumber(ARGV[3]) then
    return true
  end
  return redis.pcall('EXISTS', 'redisson_lock_queue:' .. string.sub(ARGV[2], #'redisson_lock__channel:' + 1)) ~= 0
end

local held = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if held == 1 and micros <= tonumber(ARGV[6]) and not others_wait() then
  -- The first write takes no memory: a script that has written may write on when memory is out.
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  local token, spare = token_range(ARGV[7], 0, tonumber(ARGV[8]))
  redis.call('HSET', KEYS[1], ARGV[4], '1')
  redis.call('HDEL', KEYS[1], ARGV[1])
  return {1, GRANTED, token, spare}
elseif held == 0 and redis.call('HEXISTS', KEYS[1], ARGV[4]) == 1 then
  return {0, GRANTED, next_token(ARGV[7], 0), 0}
end
local woke = 0
held = taken(ARGV[1])
if held == 1 then
  woke = wake(ARGV[2], ARGV[1])
end
return {held, woke}
