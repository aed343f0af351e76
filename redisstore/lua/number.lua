-- All numbers are integers up to 2^53 - 1, which Lua holds exactly. A sum that may be larger is only
-- compared with a number that is not. Times are µs since the Unix epoch.
--
-- There is no assignment like "a, b = b, f(a)": gopher-lua, which miniredis runs, would give f the new a.
local byte, sub, match, format, call = string.byte, string.sub, string.match, string.format, redis.call
local ceil, floor = math.ceil, math.floor

-- Tests replace this line by a clock of their own.
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local exact = 9007199254740991 -- 2^53 - 1
local day = 86400000000

-- between returns x, limited to the range from 0 to most.
local function between(x, most)
	if x < 0 then return 0 end
	return x > most and most or x
end

-- ahead returns how far a time is in the future.
local function aheadOf(time) return time > now and time - now or 0 end
