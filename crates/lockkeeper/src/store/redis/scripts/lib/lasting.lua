-- How long holds last: the rule of model/renewal.rs, in ms. A lease is never shortened, but for an end from before the clock was set back.
local MARGIN, SAME, APART = 60000, 5, 1000

-- What was asked: `lease`, or `lease reach end` where the end is known to lie too far ahead (`-` for a reach: must not be shortened).
local function asked(text)
  local lease = tonumber(text)
  if lease then
    return lease
  end
  local wanted, reach, far = string.match(text, '^(%d+) (%S+) (%d+)$')
  return tonumber(wanted), tonumber(reach), tonumber(far)
end

-- How long a hold that ends at `ends`, `left` from now, is to last from now.
local function lasting(left, ends, lease, reach, far)
  if far and reach and math.abs(ends - far) <= SAME and left > reach + MARGIN then
    return math.max(reach, 1)
  elseif lease == 0 then
    return left
  end
  local longer = math.max(left, lease)
  local ends_then = ends - left + longer
  if far and math.abs(ends_then - far) <= APART then
    longer = longer + far + APART + SAME - ends_then
  end
  return longer
end

-- When a key ends. Servers before 7.0 tell only what is left.
local function ends_at(key)
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) == 'number' then
    return ends
  end
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000) + redis.call('PTTL', key)
end

-- Keeps a key, which has `left` ms, as `text` asks: how long it lasts now, and what to reply. It is shortened only if nobody else needs it.
local function kept(key, left, text, is_alone)
  local lease, reach, far = asked(text)
  local lasts = left
  if not far and lease > 0 then
    lasts = math.max(left, lease)
  elseif far then
    lasts = lasting(left, ends_at(key), lease, is_alone() and reach, far)
  end
  if lasts ~= left then
    redis.call('PEXPIRE', key, string.format('%.0f', lasts))
  end
  return lasts, lasts > lease + MARGIN and {lasts, ends_at(key)} or 1
end

