-- A token larger than all that this counter gave out: the clock lifts one that was forgotten or left behind. Without a counter (its slot is
-- moving, and it is not here yet or no more) the clock alone counts.
local function next_token(counter, floor)
  local token = math.max(micros, floor)
  if counter == '' then
    return token
  end
  -- One call where the clock leads, as it does below a million grants a second.
  local last = redis.pcall('SET', counter, token, 'GET')
  if type(last) == 'table' and last.err then
    if string.find(last.err, 'non local key', 1, true) then
      return token
    end
    last = redis.call('SET', counter, token, 'GET')
  end
  last = tonumber(last or 0) or 0
  if last >= token then
    token = last + 1
    redis.call('SET', counter, token)
  end
  return token
end

