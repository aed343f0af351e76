-- Every number is an integer up to 2^53 - 1, which a Lua number holds exactly; what
-- can grow beyond is only ever compared with one that cannot. Times are µs since
-- the Unix epoch. In strings the most significant byte comes first.
local byte, char, sub, call = string.byte, string.char, string.sub, redis.call
local ceil, floor = math.ceil, math.floor

-- This line is replaced in tests, which have a clock of their own.
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local exact = 9007199254740991 -- 2^53 - 1
local high = 281474976710656 -- 2^48

-- number is what bytes i to j of s are, seven at most.
local function number(s, i, j)
	local a, b, c, d, e, f, g = byte(s, i, j)
	if g then return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g end
	if not a then return 0 end
	if not b then return a end
	a = a * 256 + b
	if not c then return a end
	a = a * 256 + c
	if not d then return a end
	a = a * 256 + d
	if not e then return a end
	a = a * 256 + e
	if not f then return a end
	return a * 256 + f
end

-- bytes is x in as few bytes as hold it: none for 0.
local function bytes(x)
	if x == 0 then return '' end
	local g = x % 256
	x = (x - g) / 256
	if x == 0 then return char(g) end
	local f = x % 256
	x = (x - f) / 256
	if x == 0 then return char(f, g) end
	local e = x % 256
	x = (x - e) / 256
	if x == 0 then return char(e, f, g) end
	local d = x % 256
	x = (x - d) / 256
	if x == 0 then return char(d, e, f, g) end
	local c = x % 256
	x = (x - c) / 256
	if x == 0 then return char(c, d, e, f, g) end
	local b = x % 256
	x = (x - b) / 256
	if x == 0 then return char(b, c, d, e, f, g) end
	return char(x, b, c, d, e, f, g)
end

-- six is the lower six bytes of x.
local function six(x)
	local f = x % 256
	x = (x - f) / 256
	local e = x % 256
	x = (x - e) / 256
	local d = x % 256
	x = (x - d) / 256
	local c = x % 256
	x = (x - c) / 256
	local b = x % 256
	return char((x - b) / 256 % 256, b, c, d, e, f)
end
local low = six(now)

-- seven is x, in seven bytes.
local function seven(x)
	return char((x - x % high) / high) .. (x == now and low or six(x))
end
