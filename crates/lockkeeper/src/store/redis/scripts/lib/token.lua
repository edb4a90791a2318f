-- A token larger than all that this counter gave out: the clock lifts a counter that was lost or is behind. Without a counter (its slot
-- is moving, and it is not here yet or no more) the clock alone counts. It comes before every other write of a grant: a server that is
-- out of memory, or has something else under the counter's key, refuses here, and nothing is held.
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

