-- KEYS[i] is the hash of call i. It has a field for each limit: a time in µs, and the level then.
-- For each call, ARGV has the number of its limits, and for each limit its name, the parts of a
-- unit, the parts that drain per µs, and the highest level. A call takes a unit of each limit, or
-- nothing. The reply has for each call whether it was admitted, and the level of each limit.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local at, reply = 1, {}
for _, key in ipairs(KEYS) do
	local allowed, levels, fields, ttl = 1, {}, {}, 0
	local last = at + 4 * ARGV[at]
	for i = at + 1, last, 4 do
		local unit, rate, capacity = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
		local time, level = string.match(redis.call('HGET', key, ARGV[i]) or '', '^(%d+) (%d+)$')
		level = math.max(0, (tonumber(level) or 0) - math.max(0, now - (tonumber(time) or now)) * rate)
		if level + unit > capacity then allowed = 0 end
		ttl = math.max(ttl, math.ceil((level + unit) / rate / 1000))
		levels[#levels + 1] = level
		fields[#fields + 1] = ARGV[i]
		fields[#fields + 1] = string.format('%.0f %.0f', now, level + unit)
	end
	if allowed == 1 then
		redis.call('HSET', key, unpack(fields))
		redis.call('PEXPIRE', key, string.format('%.0f', ttl))
	end
	reply[#reply + 1] = allowed
	for _, level in ipairs(levels) do reply[#reply + 1] = level end
	at = last + 1
end
return reply
