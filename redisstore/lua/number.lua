-- All numbers are integers up to 2^53 - 1, which Lua holds exactly. A sum that may be larger is only
-- compared with a number that is not. Times are µs since the Unix epoch.
local byte, char, sub, match, find, call = string.byte, string.char, string.sub, string.match, string.find, redis.call
local ceil, floor = math.ceil, math.floor

-- Tests replace this line by a clock of their own.
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local exact = 9007199254740991 -- 2^53 - 1
local day = 86400000000

-- digits returns x as Redis stores it.
local function digits(x) return string.format('%d', x) end

-- number returns the integer in bytes i to j of s, the most significant byte first.
local function number(s, i, j)
	local n = 0
	for k = i, j do n = n * 256 + byte(s, k) end
	return n
end

-- entry returns an entry of a log: a time in seven bytes, and units in two.
local function entry(time, units)
	local bytes = char(floor(units / 256), units % 256)
	for _ = 1, 7 do
		local low = time % 256
		bytes, time = char(low) .. bytes, (time - low) / 256
	end
	return bytes
end

-- convert converts parts of 1/from to parts of 1/to, rounded up. It multiplies and divides the part
-- below a unit bit by bit, because the product may have twice as many bits as a number.
local function convert(parts, from, to)
	local part, quotient, rest, bits, bit = parts % from, 0, 0, to, 4503599627370496
	while bit >= 1 do
		quotient = quotient * 2
		if rest >= from - rest then
			quotient, rest = quotient + 1, rest - (from - rest)
		else
			rest = rest + rest
		end
		if bits >= bit then
			bits = bits - bit
			if rest >= from - part then
				quotient, rest = quotient + 1, rest - (from - part)
			else
				rest = rest + part
			end
		end
		bit = bit / 2
	end
	if rest > 0 then quotient = quotient + 1 end
	return (parts - part) / from * to + quotient
end
