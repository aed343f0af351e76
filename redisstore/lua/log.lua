-- SlidingLog.
local log = {}
local entries = 2000 -- the most that a log has

-- logged returns a state with these entries, which contain level units.
local function logged(all, level)
	if all == '' then return state(now, 0, 1) end
	return state(number(all, #all - 8, #all - 2), level > 0 and level or 0, 1, 0, all)
end

function log.drain(limit, s)
	if not s then return state(now, 0, 1) end
	local all, level = s.log, s.level
	if all == '' then -- counted by another algorithm
		level = owed(s, 1, limit.most) + s.prev
		if level > limit.most then level = limit.most end
		if level > 0 then all = entry(s.time, level) end
	end
	local since, i = now - limit.window, 1
	while i < #all and number(all, i, i + 6) <= since do
		level = level - number(all, i + 7, i + 8)
		i = i + 9
	end
	return logged(sub(all, i), level)
end

-- fitsAt returns when n units fit: when enough of the oldest have left the window.
local function fitsAt(limit, s, n)
	local over, free, i = s.level + n - limit.capacity, now, 1
	while over > 0 and i < #s.log do
		free = number(s.log, i, i + 6) + limit.window
		over = over - number(s.log, i + 7, i + 8)
		i = i + 9
	end
	return free > now and free or now
end

-- append returns s with n more units in a new entry at the time at, or nil if there is no space. If at is
-- not later than the newest entry, it adds them to that entry.
local function append(limit, s, n, at)
	local all = s.log
	if n > limit.most - s.level then return end
	if all ~= '' and at <= s.time then
		all = sub(all, 1, -10) .. entry(s.time, number(all, #all - 1, #all) + n)
	elseif #all / 9 >= entries then
		return
	else
		all = all .. entry(at, n)
	end
	return logged(all, s.level + n)
end

function log.try(limit, s, n, within)
	local at = now
	if within then
		if n > limit.capacity then return end
		at = fitsAt(limit, s, n)
		if at - now > within or at - now > day then return end
	elseif n > limit.capacity - s.level then
		return
	end
	return append(limit, s, n, at)
end

-- If the log is full of entries, a charge makes the newest entry as new as itself. A refund with at takes
-- from the entries since at, the oldest first; without at, from the newest first.
function log.settle(limit, s, n, at)
	local all = s.log
	if n > 0 then
		if n > limit.most - s.level then n = limit.most - s.level end
		if n <= 0 then return s end
		if #all / 9 >= entries and s.time < now then
			s = logged(sub(all, 1, -10) .. entry(now, number(all, #all - 1, #all)), s.level)
		end
		return append(limit, s, n, now)
	end
	if all == '' or at and at <= now - limit.window then return s end
	local kept, left, level = '', -n, s.level
	while at and #all > 0 and number(all, 1, 7) < at do
		kept, all = kept .. sub(all, 1, 9), sub(all, 10)
	end
	while left > 0 and all ~= '' do
		local i = at and 1 or #all - 8
		local units = number(all, i + 7, i + 8)
		local less = units > left and left or units
		local remains = units > less and entry(number(all, i, i + 6), units - less) or ''
		if at then
			kept, all = kept .. remains, sub(all, 10)
		else
			all = sub(all, 1, -10) .. remains
		end
		left, level = left - less, level - less
	end
	return logged(kept .. all, level)
end

function log.full(limit, s) return s.log == '' and s.time or s.time + limit.window end
