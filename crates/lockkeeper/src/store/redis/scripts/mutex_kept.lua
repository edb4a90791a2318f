-- The second half of mutex_hand_over: it came too late, or something else lies under KEYS[1].

local next = {LATE}
if not late then
  local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[3])
  if type(mine) == 'table' then
    next = refused()
  elseif mine == 0 then
    next = held_by_others(left, -1)
  else
    local token = next_token(ARGV[7], tonumber(ARGV[6]))
    redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[4]), left))
    return {held, GRANTED, token}
  end
end
if held == 1 then
  redis.pcall('PUBLISH', ARGV[2], '0')
  wake_fair(ARGV[2])
end
return {held, unpack(next)}
