-- FixedWindow and SlidingWindow.
local fixed, sliding = {}, {}

-- window returns the start and the end of the window that t is in. For a Calendar they were sent: from
-- two windows before the current one to two after it.
local function window(limit, t)
	local starts = limit.starts
	if not starts then
		local start = t - t % limit.window
		return start, start + limit.window
	end
	for i = 2, #starts do
		if t < starts[i] then return starts[i - 1], starts[i] end
	end
end

-- counted returns what s counts in the window that starts at start, which contains its time. If s has
-- started later than that window, the window contains prev too.
local function counted(limit, s, start)
	local level = owed(s, 1, limit.most)
	if start < s.time then level = level + s.prev end
	return level > limit.most and limit.most or level
end

-- between returns x, limited to the range from 0 to most.
local function between(x, most)
	if x < 0 then return 0 end
	return x > most and most or x
end

function fixed.drain(limit, s)
	local start, finish = window(limit, now)
	if not s or s.time < start then return state(start, 0, 1) end
	if s.time >= finish then start = window(limit, s.time) end
	return state(start, counted(limit, s, start), 1)
end

-- A reservation is charged in the first window where it fits: that of s, or the next.
function fixed.try(limit, s, n, within)
	local full = n > limit.capacity - s.level
	if within then
		local free, finish = window(limit, s.time)
		if full then free = finish end
		if n > limit.capacity or free - now > within or free - now > day then return end
		if full then return state(finish, n, 1) end
	elseif full or s.time > now then
		return
	end
	return state(s.time, s.level + n, 1)
end

-- Only what was charged in the window of s can be given back.
function fixed.settle(limit, s, n, at)
	local start, finish = window(limit, s.time)
	at = at or now
	if n < 0 and (at < start or at >= finish) then return s end
	return state(s.time, between(s.level + n, limit.most), 1)
end

function fixed.full(limit, s)
	if s.level == 0 then return s.time end
	local _, finish = window(limit, s.time)
	return finish
end

-- slide returns s at the time at.
local function slide(limit, s, at)
	local present = at - at % limit.window
	if present <= s.time then return s end
	return state(present, 0, 1, present - s.time == limit.window and s.level or 0)
end

function sliding.drain(limit, s)
	if not s then return state(now - now % limit.window, 0, 1) end
	local start, prev = s.time - s.time % limit.window, 0
	if start == s.time then prev = between(s.prev, limit.most) end
	return slide(limit, state(start, counted(limit, s, start), 1, prev), now)
end

-- A reservation is charged at the time when the window before weighs so little that it fits.
function sliding.try(limit, s, n, within)
	local at, ticks, capacity = now, limit.window / limit.tick, limit.capacity
	if within then
		if n > capacity then return end
		local free, before, spare = s.time, s.prev, capacity - s.level - n
		if spare < 0 then free, before, spare = s.time + limit.window, s.level, capacity - n end
		local weighs = before > 0 and ticks - floor(spare * ticks / before) or 0
		if weighs > 0 then free = free + weighs * limit.tick end
		if free > at then at = free end
		if at - now > within or at - now > day then return end
		s = slide(limit, s, at)
	end
	local spare = capacity - s.level - n
	if s.time > at or spare < 0 then return end
	if s.prev * (ticks - floor((at - s.time) / limit.tick)) > spare * ticks then return end
	return state(s.time, s.level + n, 1, s.prev)
end

-- Only what was charged in the two windows of s can be given back.
function sliding.settle(limit, s, n, at)
	local level, prev = s.level, s.prev
	at = at or now
	if n > 0 or at >= s.time and at < s.time + limit.window then
		level = between(level + n, limit.most)
	elseif at >= s.time - limit.window and at < s.time then
		prev = between(prev + n, limit.most)
	end
	return state(s.time, level, 1, prev)
end

function sliding.full(limit, s)
	if s.level > 0 then return s.time + 2 * limit.window end
	return s.prev > 0 and s.time + limit.window or s.time
end
