-- Votes for one owner of the mutex KEYS[1], or says for how long another owner has the vote. In quarantine it votes only for the owner
-- that already has the vote.
--
-- Promises: those of mutex_acquire. A server that may have forgotten votes gives none. Asked again by the owner that has the vote, the server
-- raises its counter to the smallest token and no further, so that several servers can be made to agree. The smallest token counts only up to
-- the server's clock plus half of the longest lease, or three quarters if the server is asked again: clocks of servers that agree differ by a
-- quarter at most. The clock passes that before a server that forgot its counter votes again. Only a clock that was set back leaves the counter
-- further ahead. Then a repeated request counts from the counter.
--
-- ARGV: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens, run id, longest lease in ms
-- Reply: the server's clock in µs; then lib/answers, or QUARANTINED with the ms that are left

local QUARANTINED = -6
local function answer(reply)
  table.insert(reply, 1, micros)
  return reply
end
if micros > tonumber(ARGV[3]) then
  return answer({LATE})
end
local lease, floor, half = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[7]) * 500
local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then
  return answer(refused())
end
local left = quarantine(ARGV[6], tonumber(ARGV[7]), true)
if mine == 1 then
  local last = tonumber(redis.call('GET', ARGV[5]) or 0)
  local most = micros + half * 1.5
  floor = math.min(floor, last > most and last + half or most)
  local token = last >= floor and last > 0 and last or next_token(ARGV[5], floor)
  redis.call('PEXPIRE', KEYS[1], math.max(lease, redis.call('PTTL', KEYS[1])))
  return answer({GRANTED, token})
elseif left > 0 then
  return answer({QUARANTINED, left})
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return answer(held_by_others(redis.call('PTTL', KEYS[1]), -1))
end
local token = next_token(ARGV[5], math.min(floor, micros + half))
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], lease)
return answer({GRANTED, token})
