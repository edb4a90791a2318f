-- Wakes those who wait for a mutex that an owner of ours has released.
--
-- Clients of ours that wait are registered (lib/waiting). The first of them is notified, by a channel of its own, and is not registered any more: if
-- the mutex is taken before it asks, it registers again. The second one is told to ask a little later, in case the first is stopped. Nothing
-- is kept for anybody: a free mutex is granted to any that asks.
-- The message is two numbers: after how many ms to ask, and how many clients had their turns since, as far as is known.
--
-- Everybody else listens to `channel`: Redisson, older versions, and listeners of ours that want every message. '00' says nothing to clients that
-- are registered; to Redisson it is the number 0. Who listens is counted: each client that is woken in turn also subscribes to a channel to which
-- nobody publishes, and those of ours that want every message to one that tells them.
local GIVE_WAY, LATER = '20', '50 1'

-- So many clients that are gone are taken out in one script. Where there are more, all that listen are woken. A script that releases many mutexes
-- tries one client for each of them also after that.
local tries = 100

-- Notifies the first client from place `at` on that listens; takes it out if it `pops`. 1: done, 0: nobody is registered, nil: not known.
local function notify_first(waiting, turn, at, message, pops)
  repeat
    local first = redis.pcall('ZRANGE', waiting, at, at)
    if first.err or not first[1] then
      return not first.err and 0 or nil
    end
    local reached = redis.pcall('PUBLISH', turn .. first[1], message)
    if type(reached) ~= 'number' then
      return nil
    end
    if pops or reached == 0 then
      redis.pcall('ZREM', waiting, first[1])
    end
    if reached > 0 then
      return 1
    end
    tries = tries - 1
  until tries <= 0
end

-- How many were woken, or nil if nobody can be woken in turn.
local function wake_first(channel, tagged, waiting, client)
  local turn = 'redisson_lockkeeper_turn:' .. tagged .. ':'
  redis.pcall('ZREM', waiting, client)
  local registered = redis.pcall('ZCARD', waiting)
  if type(registered) ~= 'number' or registered == 0 then
    return nil
  end
  local every = 'redisson_lockkeeper_every:' .. tagged
  local counted = redis.pcall('PUBSUB', 'NUMSUB', channel, 'redisson_lockkeeper_count:' .. tagged, every)
  local others, apart, known = 1, 1, type(counted) == 'table' and type(counted[6]) == 'number'
  if known then
    others, apart = math.max(counted[2] - counted[4], 0), counted[6]
  end
  -- A JVM takes milliseconds to ask. So that it is not always too late, our first client waits as often as their number says. Where this user may not
  -- count them nobody waits: most have no JVM, and one that is there still hears of every release.
  local now = '0'
  if known and others > 0 and (redis.pcall('TIME')[2] or 0) % (registered + others) < others then
    now = GIVE_WAY
  end
  local popped = now == '0'
  if notify_first(waiting, turn, 0, now .. ' ' .. registered, popped) ~= 1 then
    return nil
  end
  notify_first(waiting, turn, popped and 0 or 1, LATER)
  if apart > 0 then
    redis.pcall('PUBLISH', every, '0')
  end
  -- Those that listen at a replica are not counted: they hear of it now and then.
  if others > 0 or redis.pcall('SET', 'lockkeeper:told:' .. tagged, '1', 'NX', 'PX', 100) then
    redis.pcall('PUBLISH', channel, '00')
  end
  return 1 + others + apart
end

-- How many were woken, ours included where all that listen are; -1 minus how many where one after the other is.
local function wake(channel, owner)
  local tagged = string.sub(channel, #'redisson_lock__channel:' + 1)
  local waiting, queue = waiting_for(tagged), 'redisson_lock_queue:' .. tagged
  if redis.pcall('EXISTS', waiting, queue) == 0 then
    return tell(channel, '0')
  end
  -- A fair waiter and those that are registered find out among themselves.
  local woke = redis.pcall('EXISTS', queue) == 0 and wake_first(channel, tagged, waiting, client_of(owner))
  return woke and -1 - woke or tell(channel, '0') + wake_fair(channel)
end

