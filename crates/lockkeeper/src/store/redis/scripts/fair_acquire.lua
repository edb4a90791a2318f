-- Grants the mutex KEYS[1] to one owner if it is its turn, or gives it a place in the queue.
--
-- Promises: those of mutex_acquire; among those who ask this way the first come is the first served; a place lasts only as long as its
-- owner asks again in time, so the dead do not block the living.
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
  redis.call('PEXPIRE', KEYS[1], math.max(lease, redis.call('PTTL', KEYS[1])))
  return {GRANTED, next_token(ARGV[5], tonumber(ARGV[4]))}
end
local held = redis.call('EXISTS', KEYS[1]) == 1
local head, score = living_head(unit)
if not held and (not head or head == owner) then
  if head then
    leave(0, owner, unit)
  end
  redis.call('HSET', KEYS[1], owner, 1)
  redis.call('PEXPIRE', KEYS[1], lease)
  return {GRANTED, next_token(ARGV[5], tonumber(ARGV[4]))}
end
if held then
  local answer = held_by_others(redis.call('PTTL', KEYS[1]), -1)
  if answer[1] ~= BUSY then
    return answer
  end
end
local index = redis.call('LPOS', queue, owner)
if index and tonumber(redis.call('ZSCORE', scores, owner) or 0) - index * unit <= millis then
  -- Not heard of for too long: it begins anew.
  leave(index, owner, unit)
  index = false
end
if place > 0 then
  index = index or redis.call('RPUSH', queue, owner) - 1
  redis.call('ZADD', scores, 'GT', millis + place + index * unit, owner)
end
local ahead = index or -1
if held then
  return {BUSY, redis.call('PTTL', KEYS[1]), ahead}
end
-- Free, but another's turn: it takes it, or its place ends.
return {BUSY, score - millis, ahead}
