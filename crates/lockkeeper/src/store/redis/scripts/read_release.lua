-- Takes one owner's share of the read-write lock KEYS[1]; the last reader notifies those who wait.
--
-- Promises: touches nothing of any other living owner; passes on a server that is out of memory; readers that died do not keep the
-- lock; its work does not grow with the number of readers.
--
-- ARGV: owner, channel
-- Reply: {1 released or 0 not held, how many were woken}

local held, woke = redis.call('DEL', hold_key(ARGV[1], 1)), 0
if taken(ARGV[1]) == 0 then
  return {0, 0}
end
if redis.call('HGET', KEYS[1], 'mode') == 'read' then
  local left, exact = readers_left()
  if left == 0 then
    redis.call('DEL', KEYS[1])
    woke = tell(ARGV[2], '0')
  elseif exact then
    redis.call('PEXPIRE', KEYS[1], ms(left))
  end
end
return {held, woke}
