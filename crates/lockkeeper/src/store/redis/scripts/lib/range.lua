-- The first of `spare` + 1 tokens that the counter gives out together, and how many follow it. While a slot moves no others are reserved.
local function token_range(counter, floor, spare)
  local token = next_token(counter, floor)
  if string.byte(counter) == 63 or spare == 0 then
    return token, 0
  end
  local reserved = redis.pcall('SET', counter, token + spare)
  return token, type(reserved) == 'table' and reserved.err and 0 or spare
end

