-- Grants all of the read-write lock KEYS[1] to one owner, or marks that it waits.
--
-- Promises: those of read_acquire; readers that died do not count; a mark lasts only as long as its owner asks again in time, and marks
-- of dead writers go away.
--
-- ARGV: owner, lease in ms, latest time in µs, smallest token, the key that counts tokens, since when it waits in µs, how long to
-- keep a mark in ms (0: do not wait)
-- Reply: lib/answers

if micros > tonumber(ARGV[3]) then
  return {LATE}
end
local owner, lease, place, left = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7]), -2
local mode = redis.pcall('HGET', KEYS[1], 'mode')
if type(mode) == 'table' or not mode and redis.call('EXISTS', KEYS[1]) == 1 then
  return refused()
elseif mode then
  left = redis.call('PTTL', KEYS[1])
  if hash_kind(left) ~= 'rwlock' then
    return refused()
  end
end
local pending = 'lockkeeper:pending:' .. tagged
local mine = mode == 'write' and redis.call('HEXISTS', KEYS[1], owner .. ':write') == 1
if mine then
  lease = math.max(lease, left)
elseif mode then
  -- A lease of which less than 1 ms is left is one all the same.
  local busy = mode == 'read' and readers_left() or math.max(left, 1)
  if busy > 0 then
    if place > 0 then
      local since, ends = string.match(redis.call('HGET', pending, owner) or '', '^(%d+) (%d+)$')
      -- No mark is that long: the clock was set back since.
      local stepped = since and tonumber(ends) > millis + place + 300000
      if not since or tonumber(ends) <= millis or stepped then
        since, ends = ARGV[6], 0
      end
      redis.call('HSET', pending, owner, since .. ' ' .. string.format('%.0f', math.max(ends, millis + place)))
      -- Others may wait for longer.
      redis.call('PEXPIRE', pending, math.max(place, redis.call('PTTL', pending)))
      local some = redis.call('HRANDFIELD', pending, 8, 'WITHVALUES')
      for i = 1, #some, 2 do
        if tonumber(string.match(some[i + 1], '%d+$')) <= millis then
          redis.call('HDEL', pending, some[i])
        end
      end
    end
    return {BUSY, busy, -1}
  end
end
local token = next_token(ARGV[5], tonumber(ARGV[4]))
if mode and not mine then
  -- Only dead readers are left.
  redis.call('DEL', KEYS[1])
end
redis.call('HDEL', pending, owner)
redis.call('HSET', KEYS[1], 'mode', 'write', owner .. ':write', '1')
redis.call('PEXPIRE', KEYS[1], lease)
return {GRANTED, token}
