-- What stands for a token that the client draws after the grant.
local DRAWN_LATER = -9007199254740992

-- The last token of this call: one script may grant many.
local drawn = 0

-- A token larger than all that this counter gave out: the clock lifts a counter that was lost or is behind. It comes before the grant: a server
-- that is out of memory, has something else under the counter's key, or has not this key of a slot that moves, refuses here, and nothing is held.
-- '?' before the counter: it may be at another server, and must not be made here.
local function next_token(counter, floor)
  if string.byte(counter) == 63 then
    counter = string.sub(counter, 2)
    if redis.pcall('EXISTS', counter) ~= 1 then
      return DRAWN_LATER
    end
  end
  -- One call where the clock leads, as it does below a million grants a second.
  local token = math.max(micros, floor, drawn + 1)
  local last = tonumber(redis.call('SET', counter, token, 'GET') or 0) or 0
  if last >= token then
    token = last + 1
    redis.call('SET', counter, token)
  end
  drawn = token
  return token
end

