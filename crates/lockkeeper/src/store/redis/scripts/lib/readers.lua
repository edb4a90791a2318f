-- Read holds in Redisson's layout: a field per reader with its number of holds, and a key per hold that lives as long as its lease.
local function hold_key(owner, number)
  return tagged .. ':' .. owner .. ':rwlock_timeout:' .. number
end

-- What lies under the key of a read hold of ours. Redisson writes 1 there, and reads it as little as we do.
local OURS = 'lockkeeper'

-- Whether somebody reads who is not ours. It looks at some readers only, if there are many.
local function is_read_by_others()
  local some = redis.call('HRANDFIELD', KEYS[1], 18, 'WITHVALUES')
  for i = 1, #some, 2 do
    local hold = is_hold(some[i], some[i + 1]) and redis.call('GET', hold_key(some[i], 1))
    if hold and hold ~= OURS then
      return true
    end
  end
  return false
end

-- How long a reader's longest hold lasts in ms, rounded up; 0: the reader is dead.
local function reader_left(owner, count)
  local longest = 0
  for number = 1, math.min(tonumber(count), 1000) do
    longest = math.max(longest, redis.call('PTTL', hold_key(owner, number)) + 1)
  end
  return longest
end

-- How long living readers keep the lock in ms, and whether that is exact; 0: none lives. It looks at all of a few readers, which is exact. Of more it
-- takes 18 fields at a time until it meets a living reader; then the lock lasts as long as the whole hash. On the way it removes the fields of
-- dead readers, at most 900 in one call: what is left then counts as alive for one more ms.
local function readers_left()
  -- A dry run removes the dead as well: that changes nothing for anybody.
  local remove = redis.purge or redis.call
  for _ = 1, 50 do
    local some, longest, dead = redis.call('HRANDFIELD', KEYS[1], 18, 'WITHVALUES'), 0, {}
    local all = #some < 36
    for i = 1, #some, 2 do
      if is_hold(some[i], some[i + 1]) then
        local left = reader_left(some[i], some[i + 1])
        longest = math.max(longest, left)
        if left == 0 then
          dead[#dead + 1] = some[i]
        elseif not all then
          -- One that lives is enough where not all are looked at.
          break
        end
      end
    end
    -- A hash that has only dead readers left is for the caller to delete as a whole.
    if #dead > 0 and (longest > 0 or not all) then
      remove('HDEL', KEYS[1], unpack(dead))
    end
    if all then
      return longest, true
    elseif longest > 0 then
      return redis.call('PTTL', KEYS[1]), false
    end
  end
  return 1, false
end

-- A duration in ms as text. Durations, not points in time: PTTL may be measured on a clock that is behind TIME by the work of other
-- commands, and a lease must never look longer than it was asked for.
local function ms(time)
  return string.format('%.0f', time)
end

-- The hash KEYS[1], which ends in `left` ms, lasts for at least as long as a hold that ends `lease` ms from now. The margin is for the
-- moment by which the clock that `left` was measured on may be behind.
local function outlast(left, lease)
  if left < lease + 5 then
    redis.call('PEXPIRE', KEYS[1], ms(math.max(left, lease)))
  end
end

