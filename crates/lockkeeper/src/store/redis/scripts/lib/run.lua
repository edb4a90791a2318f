-- Whether this server may have forgotten votes: among its data it keeps the id of its run, since when it quarantines (0: admitted), and the
-- longest lease that anybody told of. The run that is true is the one that the client read on this connection.
local RUN = 'lockkeeper:run'

local function known_run()
  local run, since, longest = string.match(redis.call('GET', RUN) or '', '^(%S+) (%d+) (%d+)$')
  return run, tonumber(since or 0), tonumber(longest or 0)
end

-- How many ms of quarantine are left; a run that is not known begins one. `keep`: whether to write that down.
local function quarantine(told, max_lease, keep)
  local run, since, longest = known_run()
  if run ~= told or longest < max_lease then
    if run ~= told then
      since = millis
    end
    longest = math.max(longest, max_lease)
    if keep then
      redis.call('SET', RUN, string.format('%s %.0f %.0f', told, since, longest))
    end
  end
  return since > 0 and math.max(0, since + longest - millis) or 0
end

