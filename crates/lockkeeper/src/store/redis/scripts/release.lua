-- Takes the mutex KEYS[1] from one owner and wakes those who wait for it.
--
-- Promises: touches nothing of any other owner; passes on a server that is out of memory (the first write only deletes);
-- a publish that is not allowed does not keep the lock.
--
-- ARGV: owner, channel
-- Reply: 1 released · 0 this owner did not hold it

if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.pcall('PUBLISH', ARGV[2], '0')
end
return 1
