-- A request that counts is carried out once: its id is remembered with its answer.
-- ARGV: id, latest time in µs (0: it only looks), how long to remember it in ms, what to do, …
local request = 'lockkeeper:request:' .. tagged .. ':' .. ARGV[1]
local reads = ARGV[2] == '0'
local seen = redis.call('GET', request)
if seen then
  local done, value = string.match(seen, '^(%d) (-?%d+)$')
  return {GRANTED, tonumber(done), tonumber(value)}
end
if not reads and micros > tonumber(ARGV[2]) then
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
    end
    redis.call('SET', request, (done and 1 or 0) .. ' ' .. string.format('%.0f', value), 'PX', ARGV[3])
  end
  return {GRANTED, done and 1 or 0, value}
end

