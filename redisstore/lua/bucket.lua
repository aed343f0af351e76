-- What is counted for one Key, one Limit's Name and one shape is a state: at time, level parts were owed. A
-- bucket has no more than that. Windows and logs also have: prev, what a SlidingWindow counted in the
-- window before; ahead, how far time was in the future when it was written, which it is if it was
-- reserved; and log, all entries of a SlidingLog. A state is always in local variables.
--
-- Each kind of limit has four functions, which are made when a batch needs them:
--
--   drain(l, state)         returns the state now; a time of nil means that there is none yet
--   try(l, n, within, state)  returns the drained state with n units charged, or nothing if they do not
--                           fit now; if within is not nil, not within so many µs
--   settle(l, n, at, debt, state)  returns the drained state with n units charged even if they do not fit,
--                           up to a level of debt; or with -n units given back that were charged at the
--                           time at, or now if at is nil
--   full(l, state)          returns when all units will be available again

-- bucket returns the functions of TokenBucket and LeakyBucket.
local function bucket()
	local function drain(l, time, level)
		local tick = l.tick
		local at = now - now % tick
		if not time then return at, 0 end
		if level > l.most then level = l.most end
		if time > now then time = now end -- from another clock
		if time % tick > 0 then time = time + tick - time % tick end
		if at > time then
			level = level - (at - time) / tick * l.rate
			time = at
		end
		if level <= 0 then return at, 0 end
		return time, level
	end

	local function try(l, n, within, time, level)
		local charged = level + n * l.unit
		if n * l.unit > l.capacity then return end
		if within then
			local over = l.leaky and level or charged - l.capacity
			if charged > l.most then return end
			if over > 0 and time - now + ceil(over / l.rate) * l.tick > within then return end
		elseif charged > l.capacity then
			return
		end
		return time, charged
	end

	local function settle(l, n, _, debt, time, level)
		local owed = level + n * l.unit
		if n > 0 and owed > debt then owed = level > debt and level or debt end
		return time, owed < 0 and 0 or owed
	end

	local function full(l, time, level) return time + ceil(level / l.rate) * l.tick end

	return drain, try, settle, full
end
