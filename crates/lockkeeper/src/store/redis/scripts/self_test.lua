-- Tries every command that the other scripts use, on a key of its own, and tells which are refused.
--
-- Reply: the errors that name a missing right or a command that the server does not have, each once

local key, other, list, set = KEYS[1], KEYS[1] .. ':hash', KEYS[1] .. ':list', KEYS[1] .. ':set'
local channel, refused = 'redisson_lock__channel:' .. KEYS[1], {}

for _, call in ipairs({
  {'TIME'}, {'TYPE', key}, {'EXISTS', key}, {'PTTL', key}, {'DEL', key, other, list, set},
  {'SET', key, 1, 'GET'}, {'SET', key, 1, 'PX', 1000}, {'GET', key}, {'INCRBY', key, 1}, {'DECRBY', key, 1}, {'DECR', key}, {'PEXPIRE', key, 1000}, {'GETRANGE', key, 0, 1},
  {'HSET', other, 'a', 1}, {'HGET', other, 'a'}, {'HEXISTS', other, 'a'}, {'HGETALL', other}, {'HRANDFIELD', other, 1, 'WITHVALUES'}, {'HDEL', other, 'a'},
  {'RPUSH', list, 'a'}, {'LPOS', list, 'a'}, {'LINDEX', list, 0}, {'LRANGE', list, 0, 0}, {'LLEN', list},
  {'LREM', list, 1, 'a'}, {'LPUSH', list, 'a'}, {'PERSIST', list}, {'LTRIM', list, 1, 0},
  {'ZADD', set, 1, 'a'}, {'ZSCORE', set, 'a'}, {'ZMSCORE', set, 'a'}, {'ZCARD', set}, {'ZCOUNT', set, 0, 1},
  {'ZRANGE', set, 0, 0}, {'ZRANGEBYSCORE', set, 0, 1}, {'ZREM', set, 'a'}, {'ZREMRANGEBYSCORE', set, 0, 1}, {'ZREMRANGEBYRANK', set, 0, 0}, {'PUBLISH', channel, '0'}, {'PUBSUB', 'NUMSUB', channel},
  {'DEL', key, other, list, set},
}) do
  local answer = redis.pcall(unpack(call))
  local why = type(answer) == 'table' and answer.err or ''
  -- Servers put it in different words.
  if string.find(why, 'NOPERM', 1, true) or string.find(why, 'executing the script', 1, true) or string.find(why, 'ermission', 1, true)
    or string.find(why, 'nknown', 1, true) then
    refused[#refused + 1] = call[1] .. ': ' .. why
  end
end
return refused
