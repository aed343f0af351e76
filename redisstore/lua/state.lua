-- A state is what is counted for one Key and one Limit's Name: at time, level parts were owed, and
-- unit parts make one unit of quota. For a SlidingWindow, prev is the count of the window before. For
-- a SlidingLog, log has all entries, the newest last, whose time is the state's.
--
-- It is stored as the value of a field: time, level and unit in digits; prev if it is not 0 or there
-- is a log; then the log.

local function state(time, level, unit, prev, log)
	return {time = time, level = level, unit = unit, prev = prev or 0, log = log or ''}
end

-- parse returns the state in a value, or nil if it is invalid.
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

-- owed returns the level of s in parts of 1/unit, but at most most.
local function owed(s, unit, most)
	local level = s.level
	if s.unit ~= unit then level = convert(level, s.unit, unit) end
	return level > most and most or level
end

-- Each kind of limit has four functions:
--
--   drain(limit, s)           returns s, or a new state if it is nil, at the current time
--   try(limit, s, n, within)  returns s, which was drained, with n units charged, or nil if they
--                             do not fit now; if within is not nil, not within so many µs
--   settle(limit, s, n, at)   returns s, which was drained, with n units charged even if they do not
--                             fit; or with -n units given back that were charged at the time at
--   full(limit, s)            returns when all units will be available again
