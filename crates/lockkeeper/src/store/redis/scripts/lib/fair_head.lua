-- Wakes the first fair waiter of a mutex, which listens to a channel of its own, besides those that listen to `channel`; how many.
local function wake_fair(channel)
  local queue = 'redisson_lock_queue:' .. string.sub(channel, #'redisson_lock__channel:' + 1)
  local head = redis.pcall('LINDEX', queue, 0)
  local woke = type(head) == 'string' and redis.pcall('PUBLISH', channel .. ':' .. head, '0')
  return type(woke) == 'number' and woke or 0
end

