-- Takes the read-write lock KEYS[1] from its writer, or the mark that one waits, and notifies those who wait.
--
-- Promises: touches nothing of any other living owner; passes on a server that is out of memory; a writer that also reads goes on
-- reading, and other readers come in.
--
-- ARGV: owner, channel
-- Reply: {1 released or 0 not held, how many were woken}

local waited = redis.call('HDEL', 'lockkeeper:pending:' .. tagged, ARGV[1])
local held = taken(ARGV[1] .. ':write')
if held == 1 then
  local left, exact = readers_left()
  if left == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
    if exact then
      redis.call('PEXPIRE', KEYS[1], ms(left))
    end
  end
end
return {held, (held == 1 or waited == 1) and tell(ARGV[2], '1') or 0}
