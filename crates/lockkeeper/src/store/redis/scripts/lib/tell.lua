-- Notifies those who subscribe to a channel; how many. Where publishing is not allowed that is not known: perhaps one.
local function tell(channel, message)
  local woke = redis.pcall('PUBLISH', channel, message)
  return type(woke) == 'number' and woke or 1
end

