-- Carries out many steps, each of KEYS for itself, by the functions in front: the scripts for one step as they are.
--
-- Promises: theirs, per step; one that fails does not touch the others.
--
-- ARGV: per key the name of its step, how many arguments, and the arguments of that script
-- Reply: per key the reply of that script, or its error as a text

local replies, at = {}, 1
for i = 1, #KEYS do
  local count, arguments = tonumber(ARGV[at + 1]), {}
  for argument = 1, count do
    arguments[argument] = ARGV[at + 1 + argument]
  end
  local done, reply = pcall(STEPS[ARGV[at]], redis, {KEYS[i]}, arguments)
  if not done and type(reply) == 'table' then
    reply = reply.err
  end
  replies[i] = reply
  at = at + 2 + count
end
return replies
