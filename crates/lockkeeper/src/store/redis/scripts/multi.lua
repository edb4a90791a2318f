-- Acquires all of KEYS, each for its own owner and as it is claimed, or none of them.
--
-- Promises: those of the scripts in front, which are run here as they are, twice: first each one dry, without its writes, and only if
-- all would be granted once more in earnest. So nothing is granted if one is busy; only marks of the dead may be removed by a dry run.
--
-- ARGV: per key `mutex`, `fair`, `read`, `write` or `permits`, how many arguments, and the arguments of that script
-- Reply: {0, a token per key (0: none)} · {which key, its answer as lib/answers}

local TAKE = {mutex = mutex, fair = fair, read = read, write = write, permits = permits}
local READS = {
  EXISTS = 1, GET = 1, GETRANGE = 1, HEXISTS = 1, HGET = 1, HGETALL = 1, HKEYS = 1, HLEN = 1, HRANDFIELD = 1, LINDEX = 1, LLEN = 1,
  LPOS = 1, LRANGE = 1, PTTL = 1, STRLEN = 1, TYPE = 1, ZCARD = 1,
  ZCOUNT = 1, ZMSCORE = 1, ZRANGE = 1, ZRANGEBYSCORE = 1, ZSCORE = 1,
}
local function reading(through)
  return function(command, ...)
    if READS[command] then
      return through(command, ...)
    elseif command == 'SET' and select(3, ...) == 'GET' then
      -- A counter of tokens. If its key has another type the real run would fail after the first grants, so fail here.
      local found = redis.pcall('TYPE', (...)).ok
      if found and found ~= 'none' and found ~= 'string' then
        redis.call('GET', (...))
      end
    end
    return 0
  end
end
local dry = {call = reading(redis.call), pcall = reading(redis.pcall), purge = redis.call}

local asked, at, claimed = {}, 1, {}
for i, key in ipairs(KEYS) do
  local claim, count, arguments = ARGV[at], tonumber(ARGV[at + 1]), {}
  for argument = 1, count do
    arguments[argument] = ARGV[at + 1 + argument]
  end
  at = at + 2 + count
  -- Two of one name cannot both have it, unless they share it. A dry run does not see the first one's.
  if claimed[key] and not (claim == 'read' and claimed[key] == 'read') then
    return {i, BUSY, -1, -1}
  end
  claimed[key] = claim
  local answer = TAKE[claim](dry, {key}, arguments)
  if answer[1] ~= GRANTED then
    table.insert(answer, 1, i)
    return answer
  end
  asked[i] = {TAKE[claim], key, arguments}
end
local tokens = {0}
for i, ask in ipairs(asked) do
  tokens[i + 1] = ask[1](redis, {ask[2]}, ask[3])[2]
end
return tokens
