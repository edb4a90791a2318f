-- Before a read of the resource KEYS[1] under a shared lock: refuses what is older than the last exclusive token, and raises nothing.
--
-- ARGV: number of the token
-- Reply: nothing · or the token that entered last, as `number owner`, if this one is older

local last = redis.call('GET', KEYS[1])
if last and tonumber(ARGV[1]) < tonumber(string.match(last, '^%d+')) then
  return last
end
return false
