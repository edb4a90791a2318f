-- The shapes by which a hash of ours or Redisson's is told from an application's own. An owner is a UUID and a number; a
-- transaction of Redisson's appends one more id.
local X4 = '%x%x%x%x'
local OWNER = '^' .. X4 .. X4 .. '%-' .. X4 .. '%-' .. X4 .. '%-' .. X4 .. '%-' .. X4 .. X4 .. X4 .. ':%-?%d+(.*)$'

-- Whether a field of a hash is a hold: an owner, and how often it holds.
local function is_hold(field, count)
  local rest = string.match(field, OWNER)
  return rest and (rest == '' or string.find(rest, '^:[%x%-]+$')) and string.find(count, '^[1-9]%d*$')
end

