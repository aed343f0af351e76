-- KEYS are the subjects, then the sets of IDs that were charged, of subjects. ARGV[1]
-- is the plan, numbers in it with the most significant byte first, and what it lists
-- counted from 1:
--
--   2 bytes   how many subjects
--   2         how many limits; for each of them:
--     1         kind: 0 TokenBucket, 1 LeakyBucket, 2 FixedWindow, 3 SlidingWindow,
--               4 SlidingLog, 5 FixedWindow of a Calendar
--     3         tick
--     7, 7, 7   rate of a bucket, or else the window; capacity; most
--     1, 2      how many bytes unit and name have
--     unit, name
--     7 each    of a Calendar: when six windows begin, the third of them now's
--   for each subject:
--     2         how many cells; for each of them:
--       2, 1      the limit whose name is its field's, 1 if it is for dry runs
--   2         how many IDs; for each of them:
--     2, 2      the set, and how many bytes it has
--     ID
--   the charges, as in run.lua

local plan, place = ARGV[1], 5
local limits, cells, ids, count = {false}, {false}, {}, 0

local s1, s2, l1, l2 = byte(plan, 1, 4)
for l = 1, l1 * 256 + l2 do
	local kind, t1, t2, t3 = byte(plan, place, place + 3)
	local size, n1, n2 = byte(plan, place + 25, place + 27)
	local drains, unit = number(plan, place + 4, place + 10), place + 28
	local name = unit + size
	local ends = name + n1 * 256 + n2
	local charge, settle = chargeBucket, settleBucket
	if kind == 2 or kind == 5 then
		charge, settle = chargeFixed, settleFixed
	elseif kind == 3 then
		charge, settle = chargeSliding, settleSliding
	elseif kind == 4 then
		charge, settle = chargeLog, settleLog
	end
	local limit = {
		kind = kind, charge = charge, settle = settle, leaky = kind == 1, field = sub(plan, name, ends - 1),
		tick = (t1 * 256 + t2) * 256 + t3, rate = drains, window = drains,
		capacity = number(plan, place + 11, place + 17), most = number(plan, place + 18, place + 24),
		unit = number(plan, unit, name - 1), binary = sub(plan, unit, name - 1),
	}
	if kind == 5 then
		local starts = {}
		for i = 1, 6 do
			starts[i] = number(plan, ends, ends + 6)
			ends = ends + 7
		end
		if now < starts[1] or now >= starts[4] then return seven(now) end
		limit.starts = starts
	end
	limits[l], place = limit, ends
end

local subjects = s1 * 256 + s2
for s = 1, subjects do
	local n1, n2 = byte(plan, place, place + 1)
	local key, first, fields = KEYS[s], count + 1
	place = place + 2
	for i = 1, n1 * 256 + n2 do
		local l1, l2, dry = byte(plan, place, place + 2)
		local name = limits[l1 * 256 + l2].field
		if dry == 1 then name = name .. '\tdry' end
		place, count = place + 3, count + 1
		if i > 1 or n2 ~= 1 or n1 > 0 then
			fields = fields or {}
			fields[i] = name
		else
			cells[count] = cell(key, name, call('HGET', key, name))
		end
	end
	if fields then
		local values = call('HMGET', key, unpack(fields))
		for i = 1, #fields do cells[first + i - 1] = cell(key, fields[i], values[i]) end
	end
end

local i1, i2 = byte(plan, place, place + 1)
place = place + 2
for i = 1, i1 * 256 + i2 do
	local k1, k2, n1, n2 = byte(plan, place, place + 3)
	local set, ends = KEYS[k1 * 256 + k2], place + 4 + n1 * 256 + n2
	local member = sub(plan, place + 4, ends - 1)
	local score = call('ZSCORE', set, member)
	ids[i] = {set = set, member = member, known = score and tonumber(score) > now, keep = false, drop = false}
	place = ends
end
