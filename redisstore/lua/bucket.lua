-- TokenBucket and LeakyBucket.
local bucket = {}

function bucket.drain(limit, s)
	local tick = limit.tick
	local at = now - now % tick
	if not s then return state(at, 0, limit.unit) end
	local level, t = owed(s, limit.unit, limit.most) + s.prev * limit.unit, s.time
	if level > limit.most then level = limit.most end
	if t > now then t = now end -- a future time is from another clock
	if t % tick > 0 then t = t + tick - t % tick end
	if at > t then level, t = level - (at - t) / tick * limit.rate, at end
	if level <= 0 then return state(at, 0, limit.unit) end
	return state(t, level, limit.unit)
end

function bucket.try(limit, s, n, within)
	local charged = s.level + n * limit.unit
	if n * limit.unit > limit.capacity then return end
	if within then
		local over = limit.leaky and s.level or charged - limit.capacity
		if charged > limit.most then return end
		if over > 0 and s.time - now + ceil(over / limit.rate) * limit.tick > within then return end
	elseif charged > limit.capacity then
		return
	end
	return state(s.time, charged, limit.unit)
end

function bucket.settle(limit, s, n)
	local level = s.level + n * limit.unit
	if level < 0 then level = 0 end
	if level > limit.most then level = limit.most end
	return state(s.time, level, limit.unit)
end

function bucket.full(limit, s) return s.time + ceil(s.level / limit.rate) * limit.tick end
