-- Takes the mutex KEYS[1], or the place in its queue, from one owner, and wakes the one whose turn it is.
--
-- Promises: those of mutex_release; whoever leaves the head of the queue of a free lock passes the turn on.
--
-- ARGV: owner, channel, unit in ms
-- Reply: {1 released or 0 not held, how many were woken}

local held, woke = taken(ARGV[1]), 0
local unit = tonumber(ARGV[3])
local index = redis.call('LPOS', queue, ARGV[1])
if index then
  leave(index, ARGV[1], unit)
end
if (held == 1 or index == 0) and redis.call('EXISTS', KEYS[1]) == 0 then
  local head = living_head(unit)
  if head then
    woke = tell(ARGV[2] .. ':' .. head, '0')
  end
  if held == 1 then
    woke = woke + tell(ARGV[2], '0')
  end
end
return {held, woke}
