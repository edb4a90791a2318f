-- Permits in Redisson's layout: the number that is free at KEYS[1], and a sorted set of those given out, by when they end.
local given = tagged .. ':timeout'

-- Takes back what has ended; gives the number that is free, or nil if there is no semaphore.
local function reclaim()
  local free = redis.call('GET', KEYS[1])
  if not free then
    return nil
  end
  local ended = redis.call('ZRANGEBYSCORE', given, '-inf', millis)
  if #ended > 0 then
    for _, permit in ipairs(ended) do
      redis.call('ZREM', given, permit)
    end
    redis.call('INCRBY', KEYS[1], #ended)
    free = free + #ended
    redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, free)
  end
  return tonumber(free)
end

