-- SlidingLog.

local entries = 2000 -- that a log has at most

-- drainLog returns what is left of the log of cell: the time of the newest entry, all
-- that is owed, no prev, the older entries, and the units of the newest one, or nil.
local function drainLog(cell, limit)
	local t, level, older, last = cell.time, cell.level, cell.log, cell.last
	if not t then return now, 0, 0, '', nil end
	if not last then -- as another algorithm left it
		last = owed(cell, 1, limit.most) + cell.prev
		if last > limit.most then last = limit.most end
		if last == 0 then return now, 0, 0, '', nil end
		level, older = last, ''
	end
	local since, gone = now - limit.window, 0
	while gone < #older and number(older, gone + 1, gone + 7) <= since do
		level = level - number(older, gone + 8, gone + 9)
		gone = gone + 9
	end
	if gone == #older and t <= since then return now, 0, 0, '', nil end
	if gone > 0 then older = sub(older, gone + 1) end
	if level < 0 then level = 0 end
	return t, level, 0, older, last
end

-- moment is when n units fit: when enough of the oldest have left.
local function moment(limit, n, t, level, older, last)
	local over, free, i = level + n - limit.capacity, now, 1
	while over > 0 and i < #older do
		free = number(older, i, i + 6) + limit.window
		over = over - number(older, i + 7, i + 8)
		i = i + 9
	end
	if over > 0 and last then free = t + limit.window end
	if free < now then return now end
	return free
end

-- append adds an entry of n units, if there is room for one: of the time at, or if
-- that is not later than the newest, to the newest.
local function append(cell, limit, n, at, t, level, older, last)
	local new = not last or at > t
	if n > limit.most - level then return false end
	if new and last then
		if #older / 9 + 1 >= entries then return false end
		older = older .. entry(t, last)
	end
	if new then t, last = at, 0 end
	leave(cell, limit, t, level + n, 0, older, last + n)
	return true
end

-- chargeLog is chargeBucket for a SlidingLog.
local function chargeLog(cell, limit, n, within)
	local t, level, _, older, last = cell.time, cell.level, 0, cell.log or '', cell.last
	if cell.limit ~= limit then t, level, _, older, last = drainLog(cell, limit) end
	local at = now
	if within then
		if n > limit.capacity then return false end
		at = moment(limit, n, t, level, older, last)
		if at - now > within or at - now > ahead then return false end
	elseif n > limit.capacity - level then
		return false
	end
	return append(cell, limit, n, at, t, level, older, last)
end

-- settleLog charges at now; a log that is full lets the newest entry take it in. It
-- gives back units of the entries from at on, the oldest first, or without at of the
-- newest.
local function settleLog(cell, limit, n, at)
	local t, level, _, older, last = cell.time, cell.level, 0, cell.log or '', cell.last
	if cell.limit ~= limit then t, level, _, older, last = drainLog(cell, limit) end
	if n > 0 then
		if n > limit.most - level then n = limit.most - level end
		if n <= 0 then return end
		if last and t < now and #older / 9 + 1 >= entries then t = now end
		append(cell, limit, n, now, t, level, older, last)
		return
	end
	if not last or at and at <= now - limit.window then return end
	local all, left = older .. entry(t, last), -n
	local kept, rest = '', all
	if at then
		local i = 1
		while i < #all and number(all, i, i + 6) < at do i = i + 9 end
		kept, rest = sub(all, 1, i - 1), sub(all, i)
	end
	while left > 0 and rest ~= '' do
		local i = at and 1 or #rest - 8
		local units = number(rest, i + 7, i + 8)
		local less = units > left and left or units
		local remains = units > less and entry(number(rest, i, i + 6), units - less) or ''
		if at then
			kept, rest = kept .. remains, sub(rest, 10)
		else
			rest = sub(rest, 1, -10) .. remains
		end
		left, level = left - less, level - less
	end
	rest = kept .. rest
	if rest == all then return end
	if level < 0 then level = 0 end
	if rest == '' then
		leave(cell, limit, now, level, 0, '', nil)
	else
		leave(cell, limit, number(rest, #rest - 8, #rest - 2), level, 0, sub(rest, 1, -10), number(rest, #rest - 1, #rest))
	end
end
