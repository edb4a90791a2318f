-- The server's clock, read once: µs for tokens and lateness, ms for leases.
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local millis = math.floor(micros / 1000)

