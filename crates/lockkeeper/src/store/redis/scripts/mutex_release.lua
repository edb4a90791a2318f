-- Takes the mutex KEYS[1] from one owner; then grants it to the successor, if one is named, or wakes those who wait.
--
-- Promises: touches nothing of any other owner; passes on a server that is out of memory (the first write only deletes); a publish
-- that is not allowed does not keep the lock; a successor comes in before anybody else can.
--
-- ARGV: owner, channel; of the successor: owner, lease in ms, latest time in µs, smallest token
-- Reply: {1 released or 0 not held, then of the successor as lib/answers}

local held = taken(ARGV[1])
local next = {}
if ARGV[3] and micros > tonumber(ARGV[5]) then
  next = {LATE}
elseif ARGV[3] then
  local has = redis.pcall('HEXISTS', KEYS[1], ARGV[3])
  if type(has) == 'table' then
    next = refused()
  elseif has == 1 or redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('HSET', KEYS[1], ARGV[3], 1)
    redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[1])))
    return {held, GRANTED, next_token(tonumber(ARGV[6]))}
  else
    next = held_by_others(-1)
  end
end
if held == 1 and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.pcall('PUBLISH', ARGV[2], '0')
end
return {held, unpack(next)}
