-- Renews holds of KEYS for their owners, or only looks whether they still have them.
--
-- Promises: one that fails does not touch the others; a lease is shortened only as model/renewal.rs says; passes on a server that is out of
-- memory: of each write only the first could be refused, and none of them takes memory before one that gives some.
--
-- ARGV: per key `hash`, field, lease · `read`, owner, lease · `permits`, how many, lease, ids …   (leases in ms, as lib/lasting has them; 0 only
-- looks)
-- Reply: per key 1 held · {ms left, end in ms} held, and for far longer than was asked · 0 not held by this owner · or its error

local replies, at = {}, 1
-- Looked up once, not for each.
local ask, keys, arguments = redis.pcall, KEYS, ARGV

local function tagged(key)
  return string.find(key, '{', 1, true) and key or '{' .. key .. '}'
end

for i = 1, #keys do
  local key, kind, lease, held, _ = keys[i], arguments[at], arguments[at + 2], 0
  if kind == 'hash' then
    local field = arguments[at + 1]
    held = ask('HEXISTS', key, field)
    if held == 1 then
      _, held = kept(key, redis.call('PTTL', key), lease, function()
        -- A writer may read as well, and its share must not end before its lease.
        return #redis.call('HRANDFIELD', key, 3) == (string.find(field, ':write', -6, true) and 2 or 1)
      end)
    end
    at = at + 3
  elseif kind == 'read' then
    local owner = arguments[at + 1]
    local hold = tagged(key) .. ':' .. owner .. ':rwlock_timeout:1'
    held = ask('HEXISTS', key, owner)
    local left = held == 1 and redis.call('PTTL', hold) or -2
    if held == 1 and left == -2 then
      held = 0
    elseif held == 1 then
      local lasts
      lasts, held = kept(hold, left, lease, function()
        return true
      end)
      if lasts < left or asked(lease) > 0 then
        -- The hash outlives every hold in it: it is set after the hold, with a margin as in lib/readers. One that outlives the only hold in it by
        -- far is from before the clock was set back.
        local whole = redis.call('PTTL', key)
        if whole < lasts + 5 then
          redis.call('PEXPIRE', key, string.format('%.0f', math.max(lasts, whole)))
        elseif whole > lasts + MARGIN and #redis.call('HRANDFIELD', key, 3) == 2 and redis.call('HGET', key, owner) == '1' then
          redis.call('PEXPIRE', key, string.format('%.0f', lasts))
        end
      end
    end
    at = at + 3
  else
    local given, count = tagged(key) .. ':timeout', tonumber(arguments[at + 1])
    local wanted, reach, far = asked(lease)
    for id = at + 3, at + 2 + count do
      local score = ask('ZSCORE', given, arguments[id])
      if type(score) == 'table' then
        held = score
        break
      elseif score and tonumber(score) > millis then
        local ends = tonumber(score)
        local lasts = lasting(ends - millis, ends, wanted, reach, far)
        if millis + lasts ~= ends then
          redis.call('ZREM', given, arguments[id])
          redis.call('ZADD', given, millis + lasts, arguments[id])
        end
        held = lasts > wanted + MARGIN and {lasts, millis + lasts} or 1
      end
    end
    at = at + 3 + count
  end
  replies[i] = type(held) == 'table' and held.err or held
end
return replies
