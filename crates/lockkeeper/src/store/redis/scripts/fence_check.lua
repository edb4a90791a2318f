-- At the write to the resource KEYS[1]: passes only the token that entered last.
--
-- ARGV: number of the token, its owner
-- Reply: nothing · or the token that entered last, as `number owner` (empty: none did)

local last = redis.call('GET', KEYS[1])
if last == ARGV[1] .. ' ' .. ARGV[2] then
  return false
end
return last or ''
