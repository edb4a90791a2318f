-- The second half of mutex_acquire: something lies under KEYS[1]. What only this half needs is made only here.

local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then
  return refused()
elseif mine == 0 then
  return held_by_others(left, -1)
end
local token = next_token(ARGV[5], tonumber(ARGV[4]))
redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[2]), left))
return {GRANTED, token}
