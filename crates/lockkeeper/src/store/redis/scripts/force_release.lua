-- Takes KEYS[1] from whoever holds it and wakes those who wait. Queues, sizes and bare numbers stay.
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
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    redis.call('DEL', hold_key(field, 1))
  end
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', 'redisson_rwlock:' .. tagged, '1')
  return 1
elseif ARGV[1] == 'semaphore' and (kind == 'semaphore' or kind == 'number') then
  local out = redis.call('ZCARD', given)
  if out > 0 then
    redis.call('DEL', given)
    redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, redis.call('INCRBY', KEYS[1], out))
    return 1
  end
end
return 0
