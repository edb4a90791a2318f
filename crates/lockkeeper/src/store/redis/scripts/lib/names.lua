-- Redisson's names for what belongs to KEYS[1]: braces around the name, unless it has one.
local tagged = KEYS[1]
if not string.find(tagged, '{', 1, true) then
  tagged = '{' .. tagged .. '}'
end

