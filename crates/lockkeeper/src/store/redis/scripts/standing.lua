-- Tells whether this server's votes count. Admits a server that knows of no run, if asked to.
--
-- ARGV: run id, longest lease in ms, `look`, `admit` or `run`
-- Reply: -1 it knows of no run · the ms of quarantine that are left · 0 it votes; for `run` the run id

if ARGV[3] == 'run' then
  return ARGV[1]
elseif known_run() then
  return quarantine(ARGV[1], tonumber(ARGV[2]), false)
elseif ARGV[3] == 'admit' then
  redis.call('SET', RUN, ARGV[1] .. ' 0 ' .. ARGV[2])
  return 0
end
return -1
