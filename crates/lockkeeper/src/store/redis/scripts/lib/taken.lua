-- Removes a field from the hash KEYS[1]: 1 it was there, 0 it was not. Anything else that lies there holds nothing of ours.
local function taken(field)
  local reply = redis.pcall('HDEL', KEYS[1], field)
  if type(reply) ~= 'table' then
    return reply
  end
  return string.find(reply.err, 'WRONGTYPE', 1, true) and 0 or redis.call('HDEL', KEYS[1], field)
end

