-- Changes or reads the bare number KEYS[1].
--
-- Promises: a request counts once, however often it is sent; asked after its time it changes nothing; reading changes nothing.
--
-- ARGV: as lib/counting; what to do is `init`, `take`, `add`, `drain`, `read` or `remove`, then the number
-- Reply: as lib/counting, with the number afterwards (drain: the number before)

if not is_number('counter') then
  return refused()
end
local there = redis.call('GET', KEYS[1])
local before, by = tonumber(there or 0), tonumber(ARGV[5] or 0)
local what = ARGV[4]
if what == 'init' and not there then
  redis.call('SET', KEYS[1], by)
  redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, by)
  return answer('counter', true, by)
elseif what == 'take' and before >= by then
  if there then
    redis.call('DECRBY', KEYS[1], by)
  end
  return answer('counter', true, before - by)
elseif what == 'add' then
  if math.abs(before + by) > 4503599627370496 then
    return {WRONG_SIZE, before + by}
  end
  local after = redis.call('INCRBY', KEYS[1], by)
  -- Redisson's waiters throw on a negative number.
  redis.pcall('PUBLISH', 'redisson_sc:' .. tagged, math.max(after, 0))
  return answer('counter', true, after)
elseif what == 'drain' then
  if before ~= 0 then
    redis.call('SET', KEYS[1], 0, 'KEEPTTL')
  end
  return answer('counter', before ~= 0, before)
elseif what == 'remove' then
  return answer('counter', redis.call('DEL', KEYS[1]) == 1, 0)
end
return answer('counter', false, before)
