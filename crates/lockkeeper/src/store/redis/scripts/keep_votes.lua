-- Renews votes of KEYS for their owners, or only checks whether they still have them. In quarantine it gives forgotten votes again.
--
-- Promises: those of renew. A vote is given again only while no other owner can get one, if nobody has it, and not after the latest time: a
-- renewal that arrives after the release must not take the lock again.
--
-- ARGV: run id, longest lease in ms, latest time in µs, then per key owner, lease in ms as lib/lasting has it (0 only checks)
-- Reply: per key 1 held · {ms left, end in ms} held, and for far longer than was asked · 0 not held by this owner · -1 not held, and too late to give it again · or its error

local left, late, replies = quarantine(ARGV[1], tonumber(ARGV[2]), true), micros > tonumber(ARGV[3]), {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[2 + 2 * i], asked(ARGV[3 + 2 * i])
  local held = redis.pcall('HEXISTS', key, owner)
  if held == 1 then
    local _
    _, held = kept(key, redis.call('PTTL', key), ARGV[3 + 2 * i], function()
      return #redis.call('HRANDFIELD', key, 2) == 1
    end)
  elseif held == 0 and left > 0 and lease > 0 and redis.call('EXISTS', key) == 0 then
    if late then
      held = -1
    else
      held = redis.pcall('HSET', key, owner, 1)
      redis.call('PEXPIRE', key, lease)
    end
  end
  replies[i] = type(held) == 'table' and held.err or held
end
return replies
