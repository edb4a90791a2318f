-- A token larger than all that this counter gave out: the clock lifts one that was forgotten or left behind. Without a counter (its slot is
-- moving, and the counter with it) the clock alone counts.
local function next_token(counter, floor)
  local token = math.max(micros, floor)
  if counter == '' then
    return token
  end
  -- One call where the clock leads, as it does below a million grants a second.
  local last = tonumber(redis.call('SET', counter, token, 'GET') or 0) or 0
  if last >= token then
    token = last + 1
    redis.call('SET', counter, token)
  end
  return token
end

