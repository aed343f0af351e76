-- An entry of a log is 21 digits: 16 of a time, and 5 of the units that were charged then. The oldest is the
-- first. The time of a state is that of the newest.
local ENTRY = 21

local function entry(time, units) return format('%016d%05d', time, units) end
-- The base is for gopher-lua, which reads 010 as 8 otherwise.
local function timeOf(log, i) return tonumber(sub(log, i, i + 15), 10) end
local function unitsOf(log, i) return tonumber(sub(log, i + 16, i + 20), 10) end

-- slidingLog returns the functions of SlidingLog.
local function slidingLog()
	local entries = 2000 -- the most that a log has

	-- logged returns a state with this log, which contains level units.
	local function logged(log, level)
		if log == '' then return now, 0, 0, 0, '' end
		local time = timeOf(log, #log - ENTRY + 1)
		return time, level > 0 and level or 0, 0, aheadOf(time), log -- less only if it was tampered with
	end

	local function drain(l, time, level, prev, ahead, log)
		if not time then return now, 0, 0, 0, '' end
		if log == '' and level + prev > 0 then -- counted by another kind
			level = between(level + prev, l.most)
			log = entry(time, level)
		end
		local last, i, clamped = now + ahead, #log - ENTRY + 1, ''
		while i > 0 and timeOf(log, i) > last do -- the clock was set back
			clamped = entry(last, unitsOf(log, i)) .. clamped
			i = i - ENTRY
		end
		if clamped ~= '' then log = sub(log, 1, i + ENTRY - 1) .. clamped end
		local since, first = now - l.window, 1
		while first < #log and timeOf(log, first) <= since do
			level = level - unitsOf(log, first)
			first = first + ENTRY
		end
		return logged(sub(log, first), level)
	end

	-- fitsAt returns when n units fit: when enough of the oldest have left the window.
	local function fitsAt(l, n, level, log)
		local over, free, i = level + n - l.capacity, now, 1
		while over > 0 and i < #log do
			free = timeOf(log, i) + l.window
			over = over - unitsOf(log, i)
			i = i + ENTRY
		end
		return free > now and free or now
	end

	-- append returns a state with n more units in a new entry at the time at, or nothing if there is no
	-- space. If at is not later than the newest entry, it adds them to that entry.
	local function append(l, n, at, time, level, log)
		if n > l.most - level then return end
		if log ~= '' and at <= time then
			log = sub(log, 1, -ENTRY - 1) .. entry(time, unitsOf(log, #log - ENTRY + 1) + n)
		elseif #log >= entries * ENTRY then
			return
		else
			log = log .. entry(at, n)
		end
		return logged(log, level + n)
	end

	local function try(l, n, within, time, level, _, _, log)
		local at = now
		if within then
			if n > l.capacity then return end
			at = fitsAt(l, n, level, log)
			if at - now > within or at - now > day then return end
		elseif n > l.capacity - level then
			return
		end
		return append(l, n, at, time, level, log)
	end

	-- If the log is full of entries, a charge makes the newest entry as new as itself. A refund with at takes
	-- from the entries since at, the oldest first; without at, from the newest first.
	local function settle(l, n, at, _, time, level, _, ahead, log)
		if n > 0 then
			n = between(n, l.most - level)
			if n == 0 then return time, level, 0, ahead, log end
			if #log >= entries * ENTRY and time < now then
				log = sub(log, 1, -ENTRY - 1) .. entry(now, unitsOf(log, #log - ENTRY + 1))
				time = now
			end
			return append(l, n, now, time, level, log)
		end
		if at and at <= now - l.window then return time, level, 0, ahead, log end
		local older, left = '', -n
		local i = 1
		while at and i < #log and timeOf(log, i) < at do i = i + ENTRY end
		if at then
			older = sub(log, 1, i - 1)
			log = sub(log, i)
		end
		while left > 0 and log ~= '' do
			local from = at and 1 or #log - ENTRY + 1
			local units = unitsOf(log, from)
			local less = units > left and left or units
			local rest = units > less and entry(timeOf(log, from), units - less) or ''
			if at then
				log = sub(log, ENTRY + 1)
				older = older .. rest
			else
				log = sub(log, 1, -ENTRY - 1) .. rest
			end
			left = left - less
			level = level - less
		end
		return logged(older .. log, level)
	end

	local function full(l, time, _, _, _, log) return log == '' and time or time + l.window end

	return drain, try, settle, full
end
