-- A token larger than all that this server gave out: the clock lifts a counter that was forgotten or left behind.
local function next_token(floor)
  local last = tonumber(redis.call('GET', 'lockkeeper:token') or 0)
  local token = math.max(last + 1, micros, floor)
  redis.call('SET', 'lockkeeper:token', token)
  return token
end

