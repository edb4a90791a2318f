-- What lives under KEYS[1]. Redisson's numbers do not tell what they count: a mark of ours does, for a day after its last use.
local KINDS = {mutex = 1, rwlock = 2, semaphore = 3, counter = 4, latch = 5}
local mark = 'lockkeeper:kind:' .. tagged

local function found_kind()
  local type = redis.call('TYPE', KEYS[1]).ok
  if type == 'hash' and redis.call('PTTL', KEYS[1]) >= 0 then
    return redis.call('HEXISTS', KEYS[1], 'mode') == 1 and 'rwlock' or 'mutex'
  elseif type == 'string' and tonumber(redis.call('GET', KEYS[1])) then
    return redis.call('GET', mark) or 'number'
  end
  return type == 'none' and type or 'foreign'
end

-- The answer to one who wanted something else than what is there.
local function refused()
  local kind = KINDS[found_kind()]
  return kind and {WRONG_KIND, kind} or {FOREIGN}
end

-- For numbers: whether KEYS[1] may be a `kind`.
local function is_number(kind)
  local found = found_kind()
  if found ~= 'none' and found ~= 'number' and found ~= kind then
    return false
  end
  if found == kind then
    redis.call('PEXPIRE', mark, 86400000)
  end
  return true
end

-- For numbers: KEYS[1] is there, and is a `kind`; or it is gone.
local function marked(kind)
  if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('SET', mark, kind, 'PX', 86400000)
  else
    redis.call('DEL', mark)
  end
end

