-- Takes KEYS[1] from all its holders and notifies those who wait. Queues, sizes and bare numbers stay.
--
-- Promises: what has not exactly the shape of a lock is not touched; one call removes at most MOST holds' keys, however many hold it.
--
-- ARGV: what inspect found it to be: `mutex`, `rwlock` or `semaphore`; unit of the fair queue in ms
-- Reply: 1 somebody held it · 0 nobody did, or it is something else by now

local kind = found_kind()
if kind == 'mutex' and ARGV[1] == 'mutex' then
  redis.call('DEL', KEYS[1])
  local head = living_head(tonumber(ARGV[2]))
  if head and head ~= '' then
    wake_waiter(head)
  end
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. tagged, '0')
  return 1
elseif kind == 'rwlock' and ARGV[1] == 'rwlock' then
  -- The hash decides: a hold whose field is gone admits nobody, is not renewed, and does not keep a writer out. So the keys of holds beyond
  -- the first MOST may stay until their leases end. An owner that comes again writes its key anew.
  local fields, keys = redis.call('HRANDFIELD', KEYS[1], MOST + 1, 'WITHVALUES'), {}
  for i = 1, #fields, 2 do
    if is_hold(fields[i], fields[i + 1]) then
      for number = 1, math.min(tonumber(fields[i + 1]), MOST - #keys) do
        keys[#keys + 1] = hold_key(fields[i], number)
      end
    end
  end
  -- All in one command: a script that is stopped here, because a key is on its way to another node, has done nothing.
  redis.call('DEL', KEYS[1], unpack(keys))
  redis.pcall('PUBLISH', 'redisson_rwlock:' .. tagged, '1')
  return 1
elseif kind == 'semaphore' and ARGV[1] == 'semaphore' then
  local out = redis.call('ZCARD', given)
  if out > 0 then
    redis.call('DEL', given)
    redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, redis.call('INCRBY', KEYS[1], out))
    return 1
  end
end
return 0
