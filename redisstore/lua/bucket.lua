-- Token buckets, counted as package quota counts them. Every number is an
-- integer up to 2^53 - 1, which a Lua number holds exactly; what can grow beyond
-- is only ever compared with one that cannot. Times are µs since the Unix epoch.

-- This line is replaced in tests, which have a clock of their own.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local exact = 9007199254740991
local ahead = 86400000000 -- a time further in the future is not believed
local corrupt = 0 -- states that could not be

-- scaled is a * b / c, rounded up, for a < c: by shift and add, since the product
-- may be twice as long as a number.
local function scaled(a, b, c)
	local quotient, rest, bit = 0, 0, 4503599627370496
	while bit >= 1 do
		quotient = quotient * 2
		if rest >= c - rest then
			quotient, rest = quotient + 1, rest - (c - rest)
		else
			rest = rest + rest
		end
		if b >= bit then
			b = b - bit
			if rest >= c - a then
				quotient, rest = quotient + 1, rest - (c - a)
			else
				rest = rest + a
			end
		end
		bit = bit / 2
	end
	if rest > 0 then quotient = quotient + 1 end
	return quotient
end

-- convert turns parts of 1/from into parts of 1/to, rounded up.
local function convert(parts, from, to)
	local units = math.floor(parts / from)
	return units * to + scaled(parts - units * from, to, from)
end

-- read returns the bucket in a field, or nil if there is none that can be.
local function read(key, field)
	local value = redis.call('HGET', key, field)
	if not value then return nil end
	local time, level, unit = string.match(value, '^(%d+):(%d+):(%d+)$')
	time, level, unit = tonumber(time), tonumber(level), tonumber(unit)
	if not time or time > exact or level > exact or unit > exact or unit < 1 then
		corrupt = corrupt + 1
		return nil
	end
	if time > now + ahead then
		corrupt = corrupt + 1
	end
	return {time = time, level = level, unit = unit}
end

-- drained is what bucket is now, for limit.
local function drained(bucket, limit)
	local at = now - now % limit.tick
	if not bucket or bucket.time > at + ahead then
		return {time = at, level = 0, unit = limit.unit}
	end
	local time, level = bucket.time, bucket.level
	if bucket.unit ~= limit.unit then
		level = convert(level, bucket.unit, limit.unit)
	end
	level = math.min(level, limit.most)
	local late = time % limit.tick
	if late > 0 then time = time + limit.tick - late end
	if at > time then
		level = math.max(0, level - (at - time) / limit.tick * limit.rate)
		time = at
	end
	return {time = time, level = level, unit = limit.unit}
end

-- charged is what bucket, drained, is with n units more.
local function charged(bucket, limit, n)
	local level = math.max(0, math.min(limit.most, bucket.level + n * limit.unit))
	return {time = bucket.time, level = level, unit = limit.unit}
end

-- whole is when bucket, drained, owes nothing more.
local function whole(bucket, limit)
	return bucket.time + math.ceil(bucket.level / limit.rate) * limit.tick
end

-- each calls visit for every charge in ARGV from the given index on.
local function each(first, visit)
	for i = first, #ARGV, 9 do
		visit({
			key = KEYS[tonumber(ARGV[i])],
			field = ARGV[i + 1],
			id = ARGV[i] .. ':' .. ARGV[i + 1],
			n = tonumber(ARGV[i + 2]),
			dry = ARGV[i + 3] == '1',
			limit = {
				tick = tonumber(ARGV[i + 4]),
				unit = tonumber(ARGV[i + 5]),
				rate = tonumber(ARGV[i + 6]),
				capacity = tonumber(ARGV[i + 7]),
				most = tonumber(ARGV[i + 8]),
			},
		})
	end
end

-- permit raises an error if key must not be written, which Redis 7 and later can
-- be asked before anything is: a call that is not permitted says so itself. To set
-- the TTL first would not do, since Redis sees whether memory is short only before
-- the first command that writes, and only if that is one which may need some.
local function permit(key)
	for _, call in ipairs({{'HSET', key, 'field', 'value'}, {'PEXPIRE', key, '1'}}) do
		if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then
			redis.call(unpack(call))
		end
	end
end

-- write stores buckets, {key, field, bucket, limit} each. A key lives until all
-- that is in it is whole, and a second longer for the sake of coarse clocks.
local function write(writes)
	local ttls = {}
	for _, w in ipairs(writes) do
		if not ttls[w.key] then
			permit(w.key)
			ttls[w.key] = redis.call('PTTL', w.key)
		end
	end
	local keys = {}
	for _, w in ipairs(writes) do
		local b = w.bucket
		redis.call('HSET', w.key, w.field, string.format('%.0f:%.0f:%.0f', b.time, b.level, b.unit))
		local ttl = math.ceil((whole(b, w.limit) - now) / 1000) + 1000
		keys[w.key] = math.max(keys[w.key] or 0, ttl)
	end
	for key, ttl in pairs(keys) do
		if ttls[key] < ttl then
			redis.call('PEXPIRE', key, string.format('%.0f', ttl))
		end
	end
end
