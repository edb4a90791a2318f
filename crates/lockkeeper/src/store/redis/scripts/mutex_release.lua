-- Takes the mutex KEYS[1] from one owner, and notifies those who wait.
--
-- Promises: touches nothing of any other owner; passes on a server that is out of memory (the only write deletes); a publish that is not
-- allowed does not keep the lock.
--
-- ARGV: owner, channel
-- Reply: {1 released or 0 not held, how many were woken: lib/wake}

local held, woke = taken(ARGV[1]), 0
if held == 1 then
  woke = wake(ARGV[2], ARGV[1])
end
return {held, woke}
