-- Sets, counts down, reads or opens the latch KEYS[1].
--
-- Promises: a request counts once, however often it is sent; counting down passes on a server that is out of memory; at zero the latch is
-- gone, and everybody who waits is notified; a number that is there is never overwritten; reading changes nothing.
--
-- ARGV: as lib/counting; what to do is `init`, `down`, `read` or `remove`, then the number
-- Reply: as lib/counting, with how many are to go

if not is_number('latch') then
  return refused()
end
local channel = 'redisson_countdownlatch__channel__{' .. KEYS[1] .. '}'
local there = redis.call('GET', KEYS[1])
local before = tonumber(there or 0)
local after, what = before, ARGV[4]
if what == 'init' and not there then
  after = tonumber(ARGV[5])
  if after > 0 then
    redis.call('SET', KEYS[1], after)
    redis.pcall('PUBLISH', channel, '1')
  end
elseif what == 'down' and before > 0 then
  after = redis.call('DECR', KEYS[1])
elseif what == 'remove' then
  after = 0
end
if before > 0 and after == 0 then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', channel, '0')
end
return answer('latch', after ~= before, after)
