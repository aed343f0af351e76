-- ARGV: the longest wait in µs; '1' to take, or else only look; the charges.
-- Returns now, corrupt, whether all fit; and for each charge whether it was taken,
-- its bucket's time, and its level before the call and before the charge.

local longest, taking = tonumber(ARGV[1]), ARGV[2] == '1'
local visits, last, allowed = {}, {}, true

each(3, function(v)
	local before = last[v.id]
	if before then
		v.found, v.met = drained(before.found, v.limit), drained(before.after, v.limit)
	else
		v.found = drained(read(v.key, v.field), v.limit)
		v.met = v.found
	end
	v.after, v.fits = v.met, false
	local cost = v.n * v.limit.unit
	if cost <= v.limit.capacity and v.met.level + cost <= v.limit.most then
		local over, wait = v.met.level - (v.limit.capacity - cost), 0
		if over > 0 then
			wait = v.met.time - now + math.ceil(over / v.limit.rate) * v.limit.tick
		end
		if wait <= longest then
			v.fits, v.after = true, charged(v.met, v.limit, v.n)
		end
	end
	allowed = allowed and (v.fits or v.dry)
	last[v.id] = v
	visits[#visits + 1] = v
end)

local reply, writes = {now, corrupt, allowed and 1 or 0}, {}
for _, v in ipairs(visits) do
	local taken = taking and allowed and v.fits
	if taken then
		writes[#writes + 1] = {key = v.key, field = v.field, bucket = v.after, limit = v.limit}
	end
	for _, number in ipairs({taken and 1 or 0, v.met.time, v.found.level, v.met.level}) do
		reply[#reply + 1] = number
	end
end
write(writes)
return reply
