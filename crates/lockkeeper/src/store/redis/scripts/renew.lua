-- Keeps holds of KEYS for their owners, or only looks whether they still have them.
--
-- Promises: one that fails does not touch the others; a lease is never shortened; passes on a server that is out of memory: of each
-- write only the first could be refused, and none of them takes memory before one that gives some.
--
-- ARGV: per key `hash`, field, lease · `read`, owner, lease · `permits`, how many, lease, ids …   (leases in ms; 0 only looks)
-- Reply: per key 1 held · 0 not held by this owner · or its error

local replies, at = {}, 1

local function lengthen(key, lease)
  if lease > 0 and redis.call('PTTL', key) < lease then
    redis.call('PEXPIRE', key, lease)
  end
end

for i, key in ipairs(KEYS) do
  local kind, lease, held = ARGV[at], tonumber(ARGV[at + 2]), 0
  local tagged = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  if kind == 'hash' then
    held = redis.pcall('HEXISTS', key, ARGV[at + 1])
    if held == 1 then
      lengthen(key, lease)
    end
    at = at + 3
  elseif kind == 'read' then
    local hold = tagged .. ':' .. ARGV[at + 1] .. ':rwlock_timeout:1'
    held = redis.pcall('HEXISTS', key, ARGV[at + 1])
    if held == 1 and redis.call('EXISTS', hold) == 0 then
      held = 0
    end
    if held == 1 then
      lengthen(hold, lease)
      lengthen(key, lease)
    end
    at = at + 3
  else
    local given, count = tagged .. ':timeout', tonumber(ARGV[at + 1])
    for id = at + 3, at + 2 + count do
      local score = redis.pcall('ZSCORE', given, ARGV[id])
      if type(score) == 'table' then
        held = score
        break
      elseif score and tonumber(score) > millis then
        held = 1
        if lease > 0 and tonumber(score) < millis + lease then
          redis.call('ZREM', given, ARGV[id])
          redis.call('ZADD', given, millis + lease, ARGV[id])
        end
      end
    end
    at = at + 3 + count
  end
  replies[i] = type(held) == 'table' and held.err or held
end
return replies
