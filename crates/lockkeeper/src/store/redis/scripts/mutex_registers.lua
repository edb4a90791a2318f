-- The second half of mutex_range: something lies under KEYS[1], or the owner's client only registers.

if left == -2 then
  register(waiting_for(KEYS[1]), ARGV[1])
  return {BUSY, -1, -1}
end
local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then
  return refused()
elseif mine == 0 then
  local answer = held_by_others(left, -1)
  if answer[1] == BUSY and ARGV[7] ~= NO then
    register(waiting_for(KEYS[1]), ARGV[1], ARGV[7] == FIRST)
  end
  return answer
end
local token = next_token(ARGV[5], tonumber(ARGV[4]))
redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[2]), left))
return {GRANTED, token}
