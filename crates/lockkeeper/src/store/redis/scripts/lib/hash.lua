-- The answer when somebody else has the mutex KEYS[1], or something that is none.
local function held_by_others(ahead)
  local left = redis.call('PTTL', KEYS[1])
  if left == -1 or redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
    return refused()
  end
  return {BUSY, left, ahead}
end

