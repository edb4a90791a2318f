-- Renews holds of KEYS for their owners, or only looks whether they still have them.
--
-- Promises: one that fails does not touch the others; a lease is never shortened; passes on a server that is out of memory: of each
-- write only the first could be refused, and none of them takes memory before one that gives some.
--
-- ARGV: per key `hash`, field, lease · `read`, owner, lease · `permits`, how many, lease, ids …   (leases in ms; 0 only looks)
-- Reply: per key 1 held · 0 not held by this owner · or its error

local replies, at = {}, 1
-- Looked up once, not for each.
local ask, keys, arguments = redis.pcall, KEYS, ARGV

-- Leases stay texts, which each command would turn numbers into.
local function lengthen(key, lease)
  if lease ~= '0' and redis.call('PTTL', key) < tonumber(lease) then
    redis.call('PEXPIRE', key, lease)
  end
end

local function tagged(key)
  return string.find(key, '{', 1, true) and key or '{' .. key .. '}'
end

for i = 1, #keys do
  local key, kind, lease, held = keys[i], arguments[at], arguments[at + 2], 0
  if kind == 'hash' then
    held = ask('HEXISTS', key, arguments[at + 1])
    if held == 1 then
      lengthen(key, lease)
    end
    at = at + 3
  elseif kind == 'read' then
    local hold = tagged(key) .. ':' .. arguments[at + 1] .. ':rwlock_timeout:1'
    held = ask('HEXISTS', key, arguments[at + 1])
    local left = held == 1 and redis.call('PTTL', hold) or -2
    if held == 1 and left == -2 then
      held = 0
    elseif held == 1 and lease ~= '0' then
      -- The hash outlives every hold in it: it is set after the hold, with a margin as in lib/readers.
      local wanted, whole = tonumber(lease), redis.call('PTTL', key)
      if left < wanted then
        redis.call('PEXPIRE', hold, lease)
      end
      if whole < wanted + 5 then
        redis.call('PEXPIRE', key, string.format('%.0f', math.max(wanted, whole)))
      end
    end
    at = at + 3
  else
    local given, count, longer = tagged(key) .. ':timeout', tonumber(arguments[at + 1]), tonumber(lease)
    for id = at + 3, at + 2 + count do
      local score = ask('ZSCORE', given, arguments[id])
      if type(score) == 'table' then
        held = score
        break
      elseif score and tonumber(score) > millis then
        held = 1
        if longer > 0 and tonumber(score) < millis + longer then
          redis.call('ZREM', given, arguments[id])
          redis.call('ZADD', given, millis + longer, arguments[id])
        end
      end
    end
    at = at + 3 + count
  end
  replies[i] = type(held) == 'table' and held.err or held
end
return replies
