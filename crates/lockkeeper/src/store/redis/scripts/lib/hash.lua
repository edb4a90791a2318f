-- The answer when another owner has the mutex KEYS[1] for `left` ms, or when that hash is no mutex.
local function held_by_others(left, ahead)
  if hash_kind(left) ~= 'mutex' then
    return refused()
  end
  return {BUSY, left, ahead}
end

