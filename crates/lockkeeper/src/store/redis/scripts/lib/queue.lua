-- The fair queue in Redisson's layout: a list of owners, and a sorted set of when each counts as dead. A score grows by one
-- `unit` (Redisson's fairLockWaitTimeout) per place ahead, because whoever is served takes one unit off all who stay. So at the
-- head a score is the time at which its owner was last heard of, plus how long a place is kept.
local queue, scores = 'redisson_lock_queue:' .. tagged, 'redisson_lock_timeout:' .. tagged

-- Everybody from this place on moves up by one.
local function move_up(from, unit)
  for _, owner in ipairs(redis.call('LRANGE', queue, from, -1)) do
    redis.call('ZINCRBY', scores, -unit, owner)
  end
end

local function leave(index, owner, unit)
  redis.call('ZREM', scores, owner)
  redis.call('LREM', queue, 1, owner)
  move_up(index, unit)
end

-- Takes away the dead at the head, and gives the living one there with its score.
local function living_head(unit)
  local at = 0
  while true do
    local head = redis.call('LINDEX', queue, at)
    if not head then
      return nil
    end
    local score = tonumber(redis.call('ZSCORE', scores, head) or 0)
    if score > millis then
      return head, score
    end
    leave(0, head, unit)
    -- In a dry run it is still there.
    if redis.call('LINDEX', queue, at) == head then
      at = at + 1
    end
  end
end

