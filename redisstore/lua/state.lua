-- A state is what is counted of one Limit's Name for one Key: at time, level parts were owed, of
-- which unit make one unit of quota. A SlidingWindow counted prev units in the window before.
-- A SlidingLog has all its entries in log, the newest last, whose time is the state's.
--
-- It is the value of a field: time, level and unit in digits; prev if there is one or there is
-- a log; and the log.

local function state(time, level, unit, prev, log)
	return {time = time, level = level, unit = unit, prev = prev or 0, log = log or ''}
end

-- parse returns the state that is in a value, or nil if nobody here has written it.
local function parse(value)
	local time, level, unit, rest = match(value, '^(%d+) (%d+) (%d+)(.*)$')
	local prev, space, log = 0, '', ''
	if rest and rest ~= '' then
		prev, space, log = match(rest, '^ (%d+)( ?)(.*)$')
		if not prev or space == '' and log ~= '' then return end
		prev = tonumber(prev)
	end
	time, level, unit = tonumber(time), tonumber(level), tonumber(unit)
	if not time or time > now + day or level > exact or unit < 1 or unit > exact or prev > exact then return end
	local size = #log
	if size > 0 and (size % 9 > 0 or level > 65535 or number(log, size - 8, size - 2) ~= time) then return end
	return state(time, level, unit, prev, log)
end

local function value(s)
	local text = string.format('%d %d %d', s.time, s.level, s.unit)
	if s.prev > 0 or s.log ~= '' then text = text .. ' ' .. digits(s.prev) end
	if s.log ~= '' then text = text .. ' ' .. s.log end
	return text
end

-- owed is the level of s in parts of 1/unit, at most most.
local function owed(s, unit, most)
	local level = s.level
	if s.unit ~= unit then level = convert(level, s.unit, unit) end
	return level > most and most or level
end

-- Each kind of limit has five functions:
--
--   drain(limit, s)               what s is now, by the numbers of limit; s may be nil
--   try(limit, s, n, within)      what s, which was drained, is with n units more if they fit:
--                                 now, or if within is not nil, within so many µs; else nil
--   settle(limit, s, n, at)       what s, which was drained, is with n units more, into debt if
--                                 need be, or with -n units of what was charged at at given back
--   whole(limit, s)               when nothing of s is owed
