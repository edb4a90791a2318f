-- Permits in Redisson's layout: the number that is free at KEYS[1], and a sorted set of those given out, by when they end.
local given = tagged .. ':timeout'

-- How many are free (nil: there is no semaphore) and how many of these have ended and are to be taken back.
local function free_permits()
  local free = redis.call('GET', KEYS[1])
  local ended = redis.call('ZCOUNT', given, '-inf', millis)
  return free and tonumber(free) + ended or nil, ended
end

-- Takes back what has ended: `free` and `ended` are what free_permits said. The first write is one that a server without memory
-- refuses, so that it grants nothing.
local function reclaim(free, ended)
  if ended > 0 then
    if free then
      redis.call('INCRBY', KEYS[1], ended)
    end
    redis.call('ZREMRANGEBYSCORE', given, '-inf', millis)
    if free then
      redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, free)
    end
  end
end

