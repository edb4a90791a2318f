-- The answer when somebody else has the mutex KEYS[1] for `left` ms, or something that is none.
local function held_by_others(left, ahead)
  if left == -1 or redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
    return refused()
  end
  return {BUSY, left, ahead}
end

