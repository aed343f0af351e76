-- FixedWindow and SlidingWindow.

-- window returns when the window of limit begins that t is in, and when it ends.
-- Those of a Calendar were sent: from two before the one of now to two after it.
local function window(limit, t)
	local starts = limit.starts
	if not starts then
		local begin = t - t % limit.window
		return begin, begin + limit.window
	end
	for i = 2, #starts do
		if t < starts[i] then return starts[i - 1], starts[i] end
	end
end

-- counted is what cell owes in the window that begins at begin, in which its time is.
-- If its own window began later than that one, so may the one before it have.
local function counted(cell, limit, begin)
	local level = owed(cell, 1, limit.most)
	if begin < cell.time then level = level + cell.prev end
	if level > limit.most then return limit.most end
	return level
end

-- drainFixed returns when the window of cell begins, what is owed in it, and no prev.
local function drainFixed(cell, limit)
	local begin, finish = window(limit, now)
	local t = cell.time
	if not t or t < begin then return begin, 0, 0 end
	if t >= finish then begin = window(limit, t) end
	return begin, counted(cell, limit, begin), 0
end

-- chargeFixed is chargeBucket for a FixedWindow. What is reserved is charged in the
-- window that has room for it: that of cell, or the next.
local function chargeFixed(cell, limit, n, within)
	local begin, level = cell.time, cell.level
	if cell.limit ~= limit then begin, level = drainFixed(cell, limit) end
	local full = n > limit.capacity - level
	if within then
		local free, finish = window(limit, begin)
		if full then free = finish end
		if n > limit.capacity or free - now > within or free - now > ahead then return false end
		if full then begin, level = finish, 0 end
	elseif full or begin > now then
		return false
	end
	leave(cell, limit, begin, level + n, 0)
	return true
end

-- settleFixed gives back only what was charged, at at, in the window of cell.
local function settleFixed(cell, limit, n, at)
	local begin, level = cell.time, cell.level
	if cell.limit ~= limit then begin, level = drainFixed(cell, limit) end
	local settled, first, finish = level + n, window(limit, begin)
	at = at or now
	if n < 0 and (at < first or at >= finish) then return end
	if settled < 0 then settled = 0 end
	if settled > limit.most then settled = limit.most end
	if settled ~= level then leave(cell, limit, begin, settled, 0) end
end

-- slide returns the two counts as they are at at.
local function slide(limit, begin, level, prev, at)
	local present = at - at % limit.window
	if present <= begin then return begin, level, prev end
	if present - begin == limit.window then return present, 0, level end
	return present, 0, 0
end

-- drainSliding returns when the window of cell begins, what is owed in it, and in the one
-- before.
local function drainSliding(cell, limit)
	local t = cell.time
	if not t then return now - now % limit.window, 0, 0 end
	local begin, prev = t - t % limit.window, 0
	if begin == t then
		prev = cell.prev
		if prev > limit.most then prev = limit.most end
	end
	return slide(limit, begin, counted(cell, limit, begin), prev, now)
end

-- chargeSliding is chargeBucket for a SlidingWindow. What is reserved is charged when
-- so little of the window before is left that it fits beside what that weighs.
local function chargeSliding(cell, limit, n, within)
	local begin, level, prev = cell.time, cell.level, cell.prev
	if cell.limit ~= limit then begin, level, prev = drainSliding(cell, limit) end
	local at, ticks, capacity = now, limit.window / limit.tick, limit.capacity
	if within then
		if n > capacity then return false end
		local free, before, room = begin, prev, capacity - level - n
		if room < 0 then free, before, room = begin + limit.window, level, capacity - n end
		local weighs = before > 0 and ticks - floor(room * ticks / before) or 0
		if weighs > 0 then free = free + weighs * limit.tick end
		if free > at then at = free end
		if at - now > within or at - now > ahead then return false end
		begin, level, prev = slide(limit, begin, level, prev, at)
	end
	local room = capacity - level - n
	if begin > at or room < 0 then return false end
	if prev * (ticks - floor((at - begin) / limit.tick)) > room * ticks then return false end
	leave(cell, limit, begin, level + n, prev)
	return true
end

-- settleSliding gives back only what was charged, at at, in the two windows of cell.
local function settleSliding(cell, limit, n, at)
	local begin, level, prev = cell.time, cell.level, cell.prev
	if cell.limit ~= limit then begin, level, prev = drainSliding(cell, limit) end
	local counts, weighs = level, prev
	at = at or now
	if n > 0 then
		counts = level + n
		if counts > limit.most then counts = limit.most end
	elseif at >= begin and at < begin + limit.window then
		counts = level + n
		if counts < 0 then counts = 0 end
	elseif at >= begin - limit.window and at < begin then
		weighs = prev + n
		if weighs < 0 then weighs = 0 end
	end
	if counts ~= level or weighs ~= prev then leave(cell, limit, begin, counts, weighs) end
end
