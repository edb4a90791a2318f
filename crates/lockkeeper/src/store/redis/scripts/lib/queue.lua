-- The fair queue in Redisson's layout: a list of owners, and a sorted set of when each counts as dead. Redisson adds the wait time of a
-- waiter to the score of the one before it, and subtracts it from all that stay when that waiter is served. `unit` is its usual wait time.
--
-- `signs` is a key of ours that Java does not read: our owners in the queue, by when their places end unless they ask again. By it alone
-- our dead are removed early. A member of the list without a sign is foreign.
local queue, scores = 'redisson_lock_queue:' .. tagged, 'redisson_lock_timeout:' .. tagged
local signs = 'lockkeeper:fair:' .. tagged

-- One script removes at most MOST dead and reads at most REACH places, WINDOW of them at a time. The next script goes on.
local MOST, REACH, WINDOW = 1000, 10000, 500

-- How far beyond what is possible a place may end before that counts as a step of the clock: what smaller steps have stretched is left. And for
-- how long such a place is kept then.
local MARGIN, ONCE_MORE = 60000, 5000

local function wake_waiter(owner)
  local woke = redis.pcall('PUBLISH', 'redisson_lock__channel:' .. tagged .. ':' .. owner, '0')
  return type(woke) == 'number' and woke or 1
end

-- Whether somebody waits who is not ours.
local function is_mixed()
  return redis.call('LLEN', queue) > redis.call('ZCARD', signs)
end

-- A queue of ours alone expires a day after the last request. Java does not know of that: while its waiters are there it does not expire.
local function keep_keys(unit)
  local lasting, left = 288 * unit, redis.call('PTTL', queue)
  if left == -2 then
    return
  elseif is_mixed() then
    -- Each by itself: a list that was written anew has lost its time to live, and the scores still have theirs.
    redis.call('PERSIST', queue)
    redis.call('PERSIST', scores)
  elseif math.min(left, redis.call('PTTL', scores)) < lasting / 2 then
    redis.call('PEXPIRE', queue, lasting)
    redis.call('PEXPIRE', scores, lasting)
  end
  if redis.call('PTTL', signs) < lasting / 2 then
    redis.call('PEXPIRE', signs, lasting)
  end
end

-- Lowers the scores of these waiters, which stand from `index` on, by `sunk`, because places of ours before them are gone: one unit for
-- each, and `gone[i]` more units from the i-th on. A foreign score does not sink below now + unit. One of ours does not sink below its sign of
-- life, and behind others one unit more: Java subtracts that when it serves the one before it. Where one sinks by less, all behind it sink
-- by less: their distances are what Java subtracts when it serves a waiter. Returns by how much the last one sank.
local function lower(waiters, index, sunk, gone, unit)
  local ends = redis.call('ZMSCORE', signs, unpack(waiters))
  for i, owner in ipairs(waiters) do
    sunk = sunk + (gone and gone[i] or 0) * unit
    if sunk > 0 then
      local score = tonumber(redis.call('ZSCORE', scores, owner) or 0)
      local least = millis + unit
      if ends[i] then
        least = tonumber(ends[i]) + (index + i > 1 and unit or 0)
      end
      sunk = math.min(sunk, math.max(0, score - least))
    end
    if sunk > 0 then
      redis.call('ZADD', scores, 'XX', 'INCR', -sunk, owner)
    end
  end
  return sunk
end

-- The same for all from this index on.
local function lower_from(index, sunk, unit)
  local at = index
  while sunk > 0 and at < index + REACH do
    local waiters = redis.call('LRANGE', queue, at, at + WINDOW - 1)
    if #waiters == 0 then
      return
    end
    sunk = lower(waiters, at, sunk, nil, unit)
    at = at + WINDOW
  end
end

-- Removes an owner of ours from the queue.
local function leave(owner, unit)
  local index = is_mixed() and redis.call('LPOS', queue, owner)
  redis.call('ZREM', signs, owner)
  redis.call('ZREM', scores, owner)
  redis.call('LREM', queue, 1, owner)
  if index then
    lower_from(index, unit, unit)
  end
  keep_keys(unit)
end

-- Brings back places of ours that end later than a place can: they were given before the clock was set back, and a dead waiter would block for as
-- long as that step. One that lives asks again about once a second. The caller's places are kept for `place`, those of others for a unit at most.
local function bring_back(place, unit)
  local edge = string.format('(%.0f', millis + math.max(place, unit) + MARGIN)
  local far, places = redis.call('ZRANGEBYSCORE', signs, edge, '+inf', 'LIMIT', 0, MOST), {}
  for _, owner in ipairs(far) do
    places[#places + 1] = millis + ONCE_MORE
    places[#places + 1] = owner
  end
  if #far > 0 then
    -- A dry run does it as well: it changes nothing for those that live.
    local write = redis.purge or redis.call
    write('ZADD', signs, unpack(places))
  end
end

-- Removes those of ours whose places ended, wherever they stand: one pass over the list, and one over the scores behind them.
local function remove_dead(unit)
  local dead = redis.call('ZRANGEBYSCORE', signs, '-inf', millis, 'LIMIT', 0, MOST)
  if #dead == 0 then
    return
  end
  local mixed, is_dead, left = is_mixed(), {}, #dead
  for _, owner in ipairs(dead) do
    is_dead[owner] = true
  end
  redis.call('ZREMRANGEBYRANK', signs, 0, #dead - 1)
  redis.call('ZREM', scores, unpack(dead))
  -- One that is out of reach stays in the list without sign and score, by which it is known to be dead.
  local living, gone, before, at = {}, {}, 0, 0
  while left > 0 and at < REACH do
    local waiters = redis.call('LRANGE', queue, at, at + WINDOW - 1)
    if #waiters == 0 then
      break
    end
    for _, owner in ipairs(waiters) do
      if is_dead[owner] then
        left, before = left - 1, before + 1
      else
        living[#living + 1], gone[#gone + 1], before = owner, before, 0
      end
    end
    at = at + #waiters
  end
  redis.call('LTRIM', queue, at, -1)
  for i = #living, 1, -1 do
    redis.call('LPUSH', queue, living[i])
  end
  if mixed then
    local sunk = 0
    for first = 1, #living, WINDOW do
      local last = math.min(first + WINDOW - 1, #living)
      sunk = lower({unpack(living, first, last)}, first - 1, sunk, {unpack(gone, first, last)}, unit)
    end
    lower_from(#living, sunk + before * unit, unit)
  end
  keep_keys(unit)
end

-- Removes the dead, and returns the first living waiter with the time at which its place ends; '' if only dead were within reach. A foreign
-- waiter that is removed is notified: if it lives, it queues again.
local function living_head(unit)
  remove_dead(unit)
  local head, last, dead, at, size = nil, nil, {}, 0, 1
  while not head and at < REACH do
    local waiters = redis.call('LRANGE', queue, at, at + size - 1)
    if #waiters == 0 then
      break
    end
    local ends = redis.call('ZMSCORE', signs, unpack(waiters))
    for i, owner in ipairs(waiters) do
      local till = tonumber(ends[i] or redis.call('ZSCORE', scores, owner) or 0)
      if till > millis then
        head, last = owner, till
        break
      elseif not ends[i] and #dead < MOST then
        dead[#dead + 1] = owner
      end
    end
    at, size = at + #waiters, WINDOW
  end
  for _, owner in ipairs(dead) do
    redis.call('LREM', queue, 1, owner)
    redis.call('ZREM', scores, owner)
    wake_waiter(owner)
  end
  if not head and at >= REACH then
    return '', millis
  end
  return head, last
end

