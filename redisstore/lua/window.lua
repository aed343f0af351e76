-- window returns the start and the end of the window that t is in. The windows of a Calendar were sent: from
-- one before the current one to three after it.
local function window(l, t)
	local starts = l.starts
	if not starts then
		local start = t - t % l.window
		return start, start + l.window
	end
	for i = 2, #starts do
		if t < starts[i] then return starts[i - 1], starts[i] end
	end
end

-- moved returns time, or if the clock was set back since it was written, the start of the window that it
-- would be in by the clock as it is now. (Of a Calendar that another version uses only one window is known.)
local function moved(l, time, ahead)
	if time > now + ahead then return (window(l, now + ahead)) end
	return time
end

-- counted returns what a window that starts at start and contains time has counted. If time is later, it is
-- from a state of another kind, whose window before may be in this one, too.
local function counted(l, start, time, level, prev)
	if start < time then level = level + prev end
	return level > l.most and l.most or level
end

-- fixed returns the functions of FixedWindow, with a Calendar or without.
local function fixed()
	local function drain(l, time, level, prev, ahead)
		local start, finish = window(l, now)
		if not time then return start, 0, 0, 0, '' end
		time = moved(l, time, ahead)
		if time < start then return start, 0, 0, 0, '' end
		if time >= finish then start = window(l, time) end
		return start, counted(l, start, time, level, prev), 0, between(aheadOf(start), ahead), ''
	end

	-- A reservation is charged in the first window where it fits: that of the state, or the next.
	local function try(l, n, within, time, level)
		local spare = n <= l.capacity - level
		if within then
			local start, finish = window(l, time)
			if not spare then start, level = finish, 0 end
			if n > l.capacity or start - now > within or start - now > day then return end
			return start, level + n, 0, aheadOf(start), ''
		end
		if spare and time <= now then return time, level + n, 0, 0, '' end
	end

	-- Only what was charged in the window of the state can be given back.
	local function settle(l, n, at, _, time, level, _, ahead)
		local start, finish = window(l, time)
		at = at or now
		if n > 0 or at >= start and at < finish then level = between(level + n, l.most) end
		return time, level, 0, ahead, ''
	end

	local function full(l, time, level)
		if level == 0 then return time end
		local _, finish = window(l, time)
		return finish
	end

	return drain, try, settle, full
end

-- sliding returns the functions of SlidingWindow.
local function sliding()
	-- slide returns a state at the time at.
	local function slide(l, at, time, level, prev)
		local present = at - at % l.window
		if present <= time then return time, level, prev end
		return present, 0, present - time == l.window and level or 0
	end

	local function drain(l, time, level, prev, ahead)
		if not time then return now - now % l.window, 0, 0, 0, '' end
		time = moved(l, time, ahead)
		local start = time - time % l.window
		level = counted(l, start, time, level, prev)
		prev = start == time and between(prev, l.most) or 0
		start, level, prev = slide(l, now, start, level, prev)
		return start, level, prev, aheadOf(start), ''
	end

	-- A reservation is charged at the time when the window before weighs so little that it fits.
	local function try(l, n, within, time, level, prev)
		local at, ticks, capacity = now, l.window / l.tick, l.capacity
		if within then
			if n > capacity then return end
			local free, before, spare = time, prev, capacity - level - n
			if spare < 0 then free, before, spare = time + l.window, level, capacity - n end
			local weighs = before > 0 and ticks - floor(spare * ticks / before) or 0
			if weighs > 0 then free = free + weighs * l.tick end
			if free > at then at = free end
			if at - now > within or at - now > day then return end
			time, level, prev = slide(l, at, time, level, prev)
		end
		local spare = capacity - level - n
		if time > at or spare < 0 then return end
		if prev * (ticks - floor((at - time) / l.tick)) > spare * ticks then return end
		return time, level + n, prev, aheadOf(time), ''
	end

	-- Only what was charged in the two windows of the state can be given back.
	local function settle(l, n, at, _, time, level, prev, ahead)
		at = at or now
		if n > 0 or at >= time and at < time + l.window then
			level = between(level + n, l.most)
		elseif at >= time - l.window and at < time then
			prev = between(prev + n, l.most)
		end
		return time, level, prev, ahead, ''
	end

	local function full(l, time, level, prev)
		if level > 0 then return time + 2 * l.window end
		return prev > 0 and time + l.window or time
	end

	return drain, try, settle, full
end
