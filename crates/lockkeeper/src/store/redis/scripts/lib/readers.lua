-- Read holds in Redisson's layout: a field per reader with its number of holds, and a key per hold that lives as long as its lease.
local function hold_key(owner, number)
  return tagged .. ':' .. owner .. ':rwlock_timeout:' .. number
end

-- How long the longest living read hold lasts, in ms; 0: no reader lives.
local function longest_read()
  local longest, fields = 0, redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    local owner = fields[i]
    if owner ~= 'mode' and string.sub(owner, -6) ~= ':write' then
      for number = 1, tonumber(fields[i + 1]) do
        longest = math.max(longest, redis.call('PTTL', hold_key(owner, number)))
      end
    end
  end
  return longest
end

