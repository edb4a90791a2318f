-- Before the first read of the resource KEYS[1] under an exclusive lock: from now on older holders are refused.
--
-- ARGV: number of the token, its owner
-- Reply: nothing · or the token that entered last, as `number owner`, if this one is older or of the same number from another owner

local last = redis.call('GET', KEYS[1])
if last then
  local number, owner = string.match(last, '^(%d+) (.+)$')
  if tonumber(ARGV[1]) < tonumber(number) or tonumber(ARGV[1]) == tonumber(number) and ARGV[2] ~= owner then
    return last
  end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
return false
