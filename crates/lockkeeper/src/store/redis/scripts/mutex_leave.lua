-- Takes a client out of those that wait for the mutex KEYS[1], and wakes the next one if the client had been woken and the mutex is free: nobody
-- there waits any more.
--
-- Promises: changes nothing but who is registered.
--
-- ARGV: channel, any owner of the client
-- Reply: 0

local tagged = string.sub(ARGV[1], #'redisson_lock__channel:' + 1)
local waiting = waiting_for(tagged)
local registered = redis.call('ZREM', waiting, client_of(ARGV[2])) == 1
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
elseif registered then
  -- Another client was woken. The client that leaves may be the one that was told to ask 50 ms later, so a new one is told.
  notify_first(waiting, 'redisson_lockkeeper_turn:' .. tagged .. ':', 0, LATER)
else
  wake(ARGV[1], ARGV[2])
end
return 0
