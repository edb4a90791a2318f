-- Acquires and releases many mutexes, each of KEYS for itself, as mutex_acquire and mutex_release do one.
--
-- Promises: theirs, per key; one that fails does not touch the others. What is not simple (something else lies there, it is already held by
-- this owner, a right is missing) is left alone, to be asked for by itself.
--
-- ARGV: the key that counts tokens; the earliest of the latest times; a digit per key that says whether to register its client, as for mutex_range
-- without ONLY (empty: none does); per key owner, lease in ms (0: release it), latest time in µs or (to release it) channel
-- Reply: per key two numbers: GRANTED token · BUSY ms · LATE 0 · of a release 1 released or 0 not held, how many were woken (lib/wake) · ALONE 0

local ALONE = -9
-- Looked up once, not for each.
local ask, keys, arguments = redis.pcall, KEYS, ARGV
local replies, granted = {}, {}
-- One comparison for all, as long as nobody is late; and texts instead of numbers, which each command would turn into texts.
local late = micros > tonumber(arguments[2])
-- The digit of each key as a byte; 48 is NO, 50 is FIRST.
local registers = arguments[3]
local function registers_as(i)
  return string.byte(registers, i) or 48
end

for i = 1, #keys do
  local key, owner, lease = keys[i], arguments[3 * i + 1], arguments[3 * i + 2]
  local code, value = ALONE, 0
  if lease == '0' then
    local held = ask('HDEL', key, owner)
    if held == 1 then
      value = wake(arguments[3 * i + 3], owner)
    end
    if type(held) == 'number' then
      code = held
    end
  elseif late and micros > tonumber(arguments[3 * i + 3]) then
    code = LATE
  else
    local left = ask('PTTL', key)
    if left == -2 then
      if ask('HSET', key, owner, '1') == 1 then
        if ask('PEXPIRE', key, lease) == 1 then
          code = GRANTED
          granted[#granted + 1] = i
          if registers_as(i) ~= 48 then
            ask('ZREM', waiting_for(key), client_of(owner))
          end
        else
          ask('HDEL', key, owner)
        end
      end
    elseif type(left) == 'number' and left >= 0 then
      -- A mutex of another owner has exactly one field.
      local fields = ask('HRANDFIELD', key, 2, 'WITHVALUES')
      if #fields == 2 and fields[1] ~= owner and is_hold(fields[1], fields[2]) then
        code, value = BUSY, left
        if registers_as(i) ~= 48 then
          register(waiting_for(key), owner, registers_as(i) == 50)
        end
      end
    end
  end
  replies[2 * i - 1], replies[2 * i] = code, value
end

-- The clock is read and the counter written once for all: the tokens of this call follow each other.
if #granted > 0 then
  local first = micros
  local last = ask('SET', arguments[1], first + #granted - 1, 'GET')
  if type(last) == 'table' and last.err then
    first = nil
  elseif last and (tonumber(last) or 0) >= first then
    first = tonumber(last) + 1
    ask('SET', arguments[1], first + #granted - 1)
  end
  for n, i in ipairs(granted) do
    if first then
      replies[2 * i] = first + n - 1
    else
      -- Without a token nothing is held.
      ask('HDEL', keys[i], arguments[3 * i + 1])
      replies[2 * i - 1] = ALONE
    end
  end
end
return replies
