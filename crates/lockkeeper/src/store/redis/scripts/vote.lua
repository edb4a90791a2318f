-- Votes for one owner of the mutex KEYS[1], or says who is in the way; in quarantine only for the one that has the vote already.
--
-- Promises: those of mutex_acquire; a server that may have forgotten votes gives none; asked again by the one who has it, the server's counter is
-- lifted to the smallest token and no further, so that several servers can be made to agree.
--
-- ARGV: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens, run id, longest lease in ms
-- Reply: lib/answers; QUARANTINED with the ms that are left

local QUARANTINED = -6
if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local lease, floor = tonumber(ARGV[2]), tonumber(ARGV[4])
local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then
  return refused()
end
local left = quarantine(ARGV[6], tonumber(ARGV[7]), true)
if mine == 1 then
  redis.call('PEXPIRE', KEYS[1], math.max(lease, redis.call('PTTL', KEYS[1])))
  local last = tonumber(redis.call('GET', ARGV[5]) or 0)
  if last >= floor and last > 0 then
    return {GRANTED, last}
  end
  return {GRANTED, next_token(ARGV[5], floor)}
elseif left > 0 then
  return {QUARANTINED, left}
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return held_by_others(redis.call('PTTL', KEYS[1]), -1)
end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], lease)
return {GRANTED, next_token(ARGV[5], floor)}
