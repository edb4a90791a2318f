-- What lies under KEYS[1]. A hash is a lock only if it ends and has exactly the shape of one. A number does not tell what it counts:
-- a mark of ours does, for a year after its last use, unless somebody else changed the number since.
local KINDS = {mutex = 1, rwlock = 2, semaphore = 3, counter = 4, latch = 5}
local TYPES = {string = 1, list = 2, set = 3, zset = 4, hash = 5, stream = 6}
local mark = 'lockkeeper:kind:' .. tagged
-- A year in ms: a number has no end of its own, and a job that uses a semaphore once a month finds its mark. It ends at all because Java
-- deletes numbers and knows nothing of the mark.
local MARKED = '31536000000'

-- What the hash KEYS[1] is that ends in `left` ms. All fields of a small one are looked at, and some of a large one.
local function hash_kind(left)
  if left < 0 then
    return 'foreign'
  end
  local some = redis.call('HRANDFIELD', KEYS[1], 16, 'WITHVALUES')
  if #some == 2 then
    return is_hold(some[1], some[2]) and 'mutex' or 'foreign'
  end
  local mode = redis.call('HGET', KEYS[1], 'mode')
  if mode ~= 'read' and mode ~= 'write' then
    return 'foreign'
  end
  for i = 1, #some, 2 do
    local field = some[i]
    if field ~= 'mode' and not is_hold(string.match(field, '^(.*):write$') or field, some[i + 1]) then
      return 'foreign'
    end
  end
  return 'rwlock'
end

-- The number at KEYS[1], as a mark remembers it: of a semaphore its size, which does not change while permits come and go.
local function to_remember(kind, number)
  local out = kind == 'semaphore' and redis.call('ZCARD', tagged .. ':timeout') or 0
  return string.format('%.0f', number + out)
end

-- What is there, and what our mark says that it was when one of us last changed it.
local function found_kind()
  local found = redis.call('TYPE', KEYS[1]).ok
  if found == 'hash' then
    return hash_kind(redis.call('PTTL', KEYS[1]))
  elseif found ~= 'string' then
    return found == 'none' and found or 'foreign'
  end
  local number = redis.call('GETRANGE', KEYS[1], 0, 17)
  local given_out = tagged .. ':timeout'
  local living = redis.pcall('ZCOUNT', given_out, '(' .. string.format('%.0f', millis), '+inf')
  if type(living) == 'table' and not string.find(living.err, 'WRONGTYPE', 1, true) then
    -- Not about what lies there, for example a key that is on its way to another node: raised as it is.
    redis.call('ZCARD', given_out)
  end
  if not string.find(number, '^%-?%d+$') or #number > 17 or type(living) == 'table' then
    return 'foreign'
  end
  local kind, value = string.match(redis.call('GET', mark) or '', '^(%a+) ?(%-?%d*)$')
  if living ~= 0 then
    return 'semaphore', kind
  elseif kind and (value == '' or value == to_remember(kind, number)) then
    return kind, kind
  end
  return 'number', kind
end

-- The answer to a request for something else than what is there.
local function refused()
  local kind = KINDS[found_kind()]
  return kind and {WRONG_KIND, kind} or {FOREIGN, TYPES[redis.call('TYPE', KEYS[1]).ok] or 0}
end

-- For numbers: whether KEYS[1] may be a `kind`.
local function is_number(kind)
  local found = found_kind()
  return found == 'none' or found == 'number' or found == kind
end

-- For numbers: one of us changed KEYS[1], which is a `kind`, or removed it.
local function marked(kind)
  local number = redis.call('GET', KEYS[1])
  if number then
    redis.call('SET', mark, kind .. ' ' .. to_remember(kind, number), 'PX', MARKED)
  else
    redis.call('DEL', mark)
  end
end

