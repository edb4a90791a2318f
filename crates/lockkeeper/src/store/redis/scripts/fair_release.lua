-- Takes the mutex KEYS[1], or the place in its queue, from one owner, and wakes the first waiter if the mutex is free.
--
-- Promises: those of mutex_release; an owner that leaves the head of the queue of a free mutex passes the turn on.
--
-- ARGV: owner, channel, unit in ms
-- Reply: {1 released or 0 not held, how many were woken}

local held, woke, was_head = taken(ARGV[1]), 0, false
local unit = tonumber(ARGV[3])
if redis.call('ZSCORE', signs, ARGV[1]) or redis.call('ZSCORE', scores, ARGV[1]) then
  was_head = redis.call('LINDEX', queue, 0) == ARGV[1]
  leave(ARGV[1], unit)
end
if (held == 1 or was_head) and redis.call('EXISTS', KEYS[1]) == 0 then
  local head = living_head(unit)
  if head and head ~= '' then
    woke = wake_waiter(head)
  end
  if held == 1 then
    woke = woke + tell(ARGV[2], '0')
  end
end
return {held, woke}
