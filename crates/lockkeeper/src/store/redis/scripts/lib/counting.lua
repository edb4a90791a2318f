-- A request that counts is carried out once: its id is remembered with its answer.
-- ARGV: id, latest time in µs (0: it only reads), how long to remember it in ms, what to do, …
local request = 'lockkeeper:request:' .. tagged .. ':' .. ARGV[1]
local reads = ARGV[2] == '0'
local seen = redis.call('GET', request)
if seen then
  local done, value = string.match(seen, '^(%d) (-?%d+)$')
  return {GRANTED, tonumber(done), tonumber(value)}
end
local latest = tonumber(ARGV[2])
if not reads and micros > latest then
  return {LATE}
end
if not reads then
  -- A first write that only deletes: what follows passes on a server that is out of memory.
  redis.call('DEL', request)
end

local function answer(kind, done, value)
  if not reads then
    if done then
      marked(kind)
    else
      redis.call('PEXPIRE', mark, MARKED)
    end
    -- Until no copy of the request can be in time any more: `latest` may lie further ahead than its sender thinks, if this server's
    -- clock was set back. A request without a latest time is remembered for as long as it says.
    local ends = millis + tonumber(ARGV[3])
    if latest < micros + 86400000000 then
      ends = math.max(ends, math.ceil(latest / 1000) + 1)
    end
    redis.call('SET', request, (done and 1 or 0) .. ' ' .. string.format('%.0f', value), 'PXAT', string.format('%.0f', ends))
  end
  return {GRANTED, done and 1 or 0, value}
end

