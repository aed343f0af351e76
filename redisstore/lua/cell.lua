-- A cell is a field of a subject's hash, and what it owes: level parts, of which
-- unit make a unit of quota, at time. A SlidingWindow counted prev units more in the
-- window before. A SlidingLog has entries of 9 bytes in log, which are a time and
-- units in 2 bytes, and last units in the newest entry, which is of the cell's time
-- and not in log; last is nil if there is none. limit is what this script charged
-- the cell with, or false.
--
-- Its value is 7 bytes: 4 bits that are 8 plus the number of bytes in level, and 52
-- bits of time; then level; then unit, without leading zeros. A zero byte instead of
-- unit, which is 1, says that there is more: the number of bytes in prev, prev, and
-- the entries of a log with the newest one.

local ahead = 86400000000 -- a time further in the future is not believed

-- parse returns what is in a value, or nothing if it is none.
local function parse(value)
	local a, b, c, d, e, f, g = byte(value, 1, 7)
	if not g or a < 128 then return end
	local top = a % 16
	local t = (((((top * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
	local after, size = 8 + (a - 128 - top) / 16, #value
	local level, lead, width = number(value, 8, after - 1), byte(value, after, after + 1)
	if not lead or level > exact or t > now + ahead then return end
	if lead > 0 then
		local unit = number(value, after, size)
		if size > after + 6 or unit > exact then return end
		return t, level, unit, 0
	end
	if not width or width > 7 then return end
	local entries = after + 2 + width
	local prev, length = number(value, after + 2, entries - 1), size - entries + 1
	if prev > exact or length < 0 or length % 9 > 0 then return end
	if length == 0 then return t, level, 1, prev end
	if level > 65535 or number(value, size - 8, size - 2) ~= t then return end
	return t, level, 1, prev, sub(value, entries, size - 9), number(value, size - 1, size)
end

-- cell returns the one with the given value, which is false if there is none.
local function cell(key, name, value)
	local t, level, unit, prev, log, last = parse(value or '')
	local new = {key = key, name = name, value = value, time = t, level = level, unit = unit, prev = prev, limit = false}
	if last then new.log, new.last = log, last end
	return new
end

-- leave notes what cell owes by limit.
local function leave(cell, limit, t, level, prev, log, last)
	cell.time, cell.level, cell.unit, cell.prev, cell.limit = t, level, limit.unit, prev, limit
	if last or cell.last then cell.log, cell.last = log, last end
end

-- entry is one of a log.
local function entry(t, units)
	local second = units % 256
	return seven(t) .. char((units - second) / 256 % 256, second)
end

-- format is the value of a cell that was charged.
local function format(cell)
	local t, level, tail = cell.time, bytes(cell.level), cell.limit.binary
	if cell.last then
		tail = '\0\0' .. cell.log .. entry(t, cell.last)
	elseif cell.prev > 0 then
		local prev = bytes(cell.prev)
		tail = '\0' .. char(#prev) .. prev
	end
	return char(128 + 16 * #level + (t - t % high) / high) .. (t == now and low or six(t)) .. level .. tail
end

-- convert turns parts of 1/from into parts of 1/to, rounded up. What is less than a
-- unit is multiplied and divided bit by bit, since the product may be twice as long
-- as a number.
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

-- owed is what cell owes in parts of 1/unit, and in most at most.
local function owed(cell, unit, most)
	local level = cell.level
	if cell.unit ~= unit then level = convert(level, cell.unit, unit) end
	if level > most then return most end
	return level
end
