-- The clients of ours that wait for a mutex and are woken in turn: a sorted set, by a number that grows. No clock decides, because the server's may be set.
local function waiting_for(key)
  return 'lockkeeper:waiting:' .. (string.find(key, '{', 1, true) and key or '{' .. key .. '}')
end

local function client_of(owner)
  return string.match(owner, '^(.*):')
end

-- Registers the client of an owner unless it is: at the end, or before all others where it was woken and another was faster.
-- A waiter that lives asks every second, so the set of those that do not ends soon. Where nothing may be written it polls. A key of another type
-- that lies there is left alone: whoever put it there has not asked for an end of it.
local function register(waiting, owner, first)
  local client = client_of(owner)
  local place = redis.pcall('ZSCORE', waiting, client)
  if type(place) == 'table' then
    return
  end
  local added = not place
  if added then
    local edge = redis.pcall('ZRANGE', waiting, first and 0 or -1, first and 0 or -1, 'WITHSCORES')
    redis.pcall('ZADD', waiting, edge[2] and edge[2] + (first and -1 or 1) or 0, client)
  end
  local left = redis.pcall('PTTL', waiting)
  if added or type(left) == 'number' and left < 5000 then
    redis.pcall('PEXPIRE', waiting, 10000)
  end
end
