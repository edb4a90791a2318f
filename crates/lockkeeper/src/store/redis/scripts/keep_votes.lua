-- Keeps votes of KEYS for their owners, or only looks whether they still have them; in quarantine gives them again what was forgotten.
--
-- Promises: those of renew; a vote is given again only while nobody else can get one, and if nobody has one.
--
-- ARGV: run id, longest lease in ms, then per key owner, lease in ms (0 only looks)
-- Reply: per key 1 held · 0 not held by this owner · or its error

local left, replies = quarantine(ARGV[1], tonumber(ARGV[2]), true), {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[1 + 2 * i], tonumber(ARGV[2 + 2 * i])
  local held = redis.pcall('HEXISTS', key, owner)
  if held == 1 then
    if lease > 0 and redis.call('PTTL', key) < lease then
      redis.call('PEXPIRE', key, lease)
    end
  elseif held == 0 and left > 0 and lease > 0 and redis.call('EXISTS', key) == 0 then
    held = redis.pcall('HSET', key, owner, 1)
    redis.call('PEXPIRE', key, lease)
  end
  replies[i] = type(held) == 'table' and held.err or held
end
return replies
