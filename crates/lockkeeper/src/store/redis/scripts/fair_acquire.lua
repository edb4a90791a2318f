-- Grants the mutex KEYS[1] to one owner if it is its turn, or gives it a place in the queue.
--
-- Promises: those of mutex_acquire; waiters that ask this way are served in order of arrival; a place lasts only as long as its owner asks
-- again in time, so that a dead one does not block the others, also after the clock was set back; bounded work, however many died.
--
-- ARGV: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens, how long to keep a place in ms (0: do not
-- queue), unit in ms
-- Reply: lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local owner, lease, place, unit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6]), tonumber(ARGV[7])
local mine = redis.pcall('HEXISTS', KEYS[1], owner)
if type(mine) == 'table' then
  return refused()
elseif mine == 1 then
  local token = next_token(ARGV[5], tonumber(ARGV[4]))
  redis.call('PEXPIRE', KEYS[1], math.max(lease, redis.call('PTTL', KEYS[1])))
  return {GRANTED, token}
end
local held = redis.call('EXISTS', KEYS[1]) == 1
bring_back(place, unit)
local head, last = living_head(unit)
local index = redis.call('LPOS', queue, owner)
local sign = tonumber(redis.call('ZSCORE', signs, owner) or 0)
-- A Java client took this owner for dead, which lives. Java removes only from the head, so it came before all that are there.
local removed = not index and sign > millis
if not held and (not head or head == owner or removed) then
  local token = next_token(ARGV[5], tonumber(ARGV[4]))
  if head or sign > 0 then
    leave(owner, unit)
  end
  redis.call('HSET', KEYS[1], owner, 1)
  redis.call('PEXPIRE', KEYS[1], lease)
  return {GRANTED, token}
end
if held then
  local answer = held_by_others(redis.call('PTTL', KEYS[1]), -1)
  if answer[1] ~= BUSY then
    return answer
  end
end
if place > 0 then
  local ends = math.max(sign, millis + place)
  if removed then
    redis.call('LPUSH', queue, owner)
    index = 0
  elseif not index then
    index = redis.call('RPUSH', queue, owner) - 1
  end
  redis.call('ZADD', signs, ends, owner)
  -- At the head a short score lets Java remove us soon after our last sign of life. Behind others each that is served may subtract its
  -- wait time, so a score is worth what Java's own would be, and is not lowered while Java waits.
  local score = ends
  if index > 0 and not is_mixed() then
    score = ends + index * unit
  elseif index > 0 then
    local known = redis.call('ZSCORE', scores, owner)
    local before = known or redis.call('ZSCORE', scores, redis.call('LINDEX', queue, index - 1) or '') or 0
    score = math.max(ends + unit, tonumber(before) + (known and 0 or unit))
  end
  redis.call('ZADD', scores, score, owner)
  keep_keys(unit)
end
local ahead = index or -1
if held then
  return {BUSY, redis.call('PTTL', KEYS[1]), ahead}
end
-- It is free and another's turn. It is reminded, because it may have missed its notification and Java asks by itself only after a lease.
if head ~= '' then
  wake_waiter(head)
end
return {BUSY, math.max(1, last - millis), ahead}
