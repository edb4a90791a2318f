-- A token larger than all that this counter gave out: the clock lifts one that was forgotten or left behind.
local function next_token(counter, floor)
  local token = math.max(micros, floor)
  -- One call where the clock leads, as it does below a million grants a second.
  local last = tonumber(redis.call('SET', counter, token, 'GET') or 0) or 0
  if last >= token then
    token = last + 1
    redis.call('SET', counter, token)
  end
  return token
end

