-- TokenBucket and LeakyBucket.

-- drainBucket returns the time and the level of cell by limit now, and no prev.
local function drainBucket(cell, limit)
	local t, tick = cell.time, limit.tick
	local at = now - now % tick
	if not t or t > at + ahead then return at, 0, 0 end
	local level = owed(cell, limit.unit, limit.most) + cell.prev * limit.unit
	if level > limit.most then level = limit.most end
	if t % tick > 0 then t = t + tick - t % tick end
	if at <= t then return t, level, 0 end
	level = level - (at - t) / tick * limit.rate
	if level < 0 then level = 0 end
	return at, level, 0
end

-- chargeBucket charges cell with n units if they fit, and reports whether they did:
-- now, or if within is not nil, within so many µs.
local function chargeBucket(cell, limit, n, within)
	local t, level = cell.time, cell.level
	if cell.limit ~= limit then t, level = drainBucket(cell, limit) end
	local cost, capacity = n * limit.unit, limit.capacity
	local charged = level + cost
	if cost > capacity then return false end
	if within then
		local over = limit.leaky and level or charged - capacity
		if charged > limit.most then return false end
		if over > 0 and t - now + ceil(over / limit.rate) * limit.tick > within then return false end
	elseif charged > capacity then
		return false
	end
	if cell.limit == limit then
		cell.level = charged
	else
		leave(cell, limit, t, charged, 0)
	end
	return true
end

-- settleBucket charges cell with n units, into debt if need be, or gives -n back.
local function settleBucket(cell, limit, n)
	local t, level = cell.time, cell.level
	if cell.limit ~= limit then t, level = drainBucket(cell, limit) end
	local settled = level + n * limit.unit
	if settled < 0 then settled = 0 end
	if settled > limit.most then settled = limit.most end
	if settled ~= level then leave(cell, limit, t, settled, 0) end
end
