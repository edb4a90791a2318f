-- Sets or removes the size of the semaphore KEYS[1], or reads what is free.
--
-- Promises: those of lib/counting; reading changes nothing.
--
-- ARGV: as lib/counting; what to do is `init`, `resize`, `read` or `remove`, then the number
-- Reply: as lib/counting, with the size afterwards; of `read` whether it is there, and how many are free

if not is_number('semaphore') then
  return refused()
end
local free, ended = free_permits()
if ARGV[4] == 'read' then
  return answer('semaphore', free ~= nil, free or 0)
end
reclaim(free, ended)
local out = redis.call('ZCARD', given)
local size, done = free and free + out or 0, false
if ARGV[4] == 'remove' then
  if free and out == 0 then
    redis.call('DEL', KEYS[1])
    size, done = 0, true
  end
elseif ARGV[4] == 'resize' or not free then
  local before = size
  size, done = tonumber(ARGV[5]), true
  redis.call('SET', KEYS[1], size - out, 'KEEPTTL')
  if size > before then
    redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, size - out)
  end
end
return answer('semaphore', done, size)
