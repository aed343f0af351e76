-- What plan.lua and run.lua describe, if it is no more than charges of buckets, none of
-- them a dry run or with an ID, and each by the limit that its cell is named by. What it
-- finds in Redis must have been written by the same numbers, or it replies with nothing
-- and has done nothing. It is what most calls are, so there are as few tables as can be:
-- what belongs together stands side by side in one, beginning after some place.
local plan, place = ARGV[1], 5
local s1, s2, l1, l2 = byte(plan, 1, 4)

-- tick, rate, capacity, most, unit, the same as bytes, name
local limits, at = {0, 0, 0, 0, 0, '', ''}, 0
for l = 1, l1 * 256 + l2 do
	local _, t1, t2, t3, r1, r2, r3, r4, r5, r6, r7, c1, c2, c3, c4, c5, c6, c7, m1, m2, m3, m4, m5, m6, m7, size, n1, n2 =
		byte(plan, place, place + 27)
	local unit = place + 28
	local name = unit + size
	place = name + n1 * 256 + n2
	limits[at + 1] = (t1 * 256 + t2) * 256 + t3
	limits[at + 2] = (((((r1 * 256 + r2) * 256 + r3) * 256 + r4) * 256 + r5) * 256 + r6) * 256 + r7
	limits[at + 3] = (((((c1 * 256 + c2) * 256 + c3) * 256 + c4) * 256 + c5) * 256 + c6) * 256 + c7
	limits[at + 4] = (((((m1 * 256 + m2) * 256 + m3) * 256 + m4) * 256 + m5) * 256 + m6) * 256 + m7
	limits[at + 5] = number(plan, unit, name - 1)
	limits[at + 6] = sub(plan, unit, name - 1)
	limits[at + 7] = sub(plan, name, place - 1)
	at = at + 7
end

-- The last place of its cells, and how many ms it lives if any of them was charged.
local subjects = {0, false}
-- The place of its limit, value or false, time and level, drained, how often it was charged.
local cells, free = {0, false, 0, 0, 0}, 0
local most = 2 * (s1 * 256 + s2)
for s = 2, most, 2 do
	local key, first = KEYS[s / 2], free
	local n1, n2, b1, b2 = byte(plan, place, place + 3)
	free = free + 5 * (n1 * 256 + n2)
	place = place + 2
	if free == first + 5 then
		local l = 7 * (b1 * 256 + b2 - 1)
		cells[first + 1], cells[first + 2] = l, call('HGET', key, limits[l + 7])
		place = place + 3
	else
		local names, n = {}, 0
		for c = first, free - 5, 5 do
			b1, b2 = byte(plan, place, place + 1)
			local l = 7 * (b1 * 256 + b2 - 1)
			n, place = n + 1, place + 3
			cells[c + 1], names[n] = l, limits[l + 7]
		end
		local values = call('HMGET', key, unpack(names))
		for i = 1, n do cells[first + 5 * i - 3] = values[i] end
	end
	for c = first, free - 5, 5 do
		local l, value, tick, t, level = cells[c + 1], cells[c + 2], 1, now, 0
		if limits[l + 1] > 1 then
			tick = limits[l + 1]
			t = now - now % tick
		end
		if value then
			local a, b, x, d, e, f, g, h, i, j, k, m, n, o = byte(value, 1, 14)
			if not h or a < 128 then return '' end
			local top = a % 16
			local width = (a - 128 - top) / 16
			local before = (((((top * 256 + b) * 256 + x) * 256 + d) * 256 + e) * 256 + f) * 256 + g
			if width == 7 and o then
				level = (((((h * 256 + i) * 256 + j) * 256 + k) * 256 + m) * 256 + n) * 256 + o
			elseif width == 6 and n then
				level = ((((h * 256 + i) * 256 + j) * 256 + k) * 256 + m) * 256 + n
			else
				level = number(value, 8, 7 + width)
			end
			if sub(value, 8 + width) ~= limits[l + 6] or level > limits[l + 4] or before > t + 86400000000 or before % tick > 0 then
				return ''
			end
			if t > before then
				level = level - (t - before) / tick * limits[l + 2]
				if level < 0 then level = 0 end
			else
				t = before
			end
		end
		cells[c + 3], cells[c + 4], cells[c + 5] = t, level, 0
	end
	subjects[s - 1], subjects[s] = free, false
end

-- The charges of the calls: those of one call are taken back if one does not fit.
local reply, said, size = {seven(now), '', '', ''}, 1, #plan
place = place + 2
while place <= size do
	local from, denied, flags, c1, c2, n, _ = place, false
	repeat
		flags, c1, c2, _, _, n = byte(plan, place, place + 5)
		place = place + 6
		if flags >= 4 then n, place = number(plan, place, place + 6), place + 7 end
		if not denied then
			local c = 5 * (c1 * 256 + c2 - 1)
			local l = cells[c + 1]
			local level = cells[c + 4] + n * limits[l + 5]
			if level <= limits[l + 3] then
				cells[c + 4], cells[c + 5] = level, cells[c + 5] + 1
			else
				denied = place
			end
		end
	until flags % 2 == 0
	if denied then
		while true do
			flags, c1, c2, _, _, n = byte(plan, from, from + 5)
			from = from + 6
			if flags >= 4 then n, from = number(plan, from, from + 6), from + 7 end
			if from == denied then break end
			local c = 5 * (c1 * 256 + c2 - 1)
			cells[c + 4], cells[c + 5] = cells[c + 4] - n * limits[cells[c + 1] + 5], cells[c + 5] - 1
		end
	end
	said = said + 1
	reply[said] = denied and '\0' or '\1'
end

-- What one key permits all do: Redis refuses a script unless all its KEYS may be read and
-- written.
local c, permitted = 0, false
for s = 2, most, 2 do
	local key = KEYS[s / 2]
	for c = c, subjects[s - 1] - 5, 5 do
		if cells[c + 5] > 0 then
			if not permitted then
				permit('HSET', key, 'field', 'value')
				permit('PEXPIRE', key, '1')
				permitted = true
			end
			subjects[s] = call('PTTL', key)
			break
		end
	end
	c = subjects[s - 1]
end
c = 0
for s = 2, most, 2 do
	if subjects[s] then
		local key, last, n, fields, name, value = KEYS[s / 2], 0, 0
		for c = c, subjects[s - 1] - 5, 5 do
			if cells[c + 5] > 0 then
				local l, t, level = cells[c + 1], cells[c + 3], cells[c + 4]
				local ends, parts = t + ceil(level / limits[l + 2]) * limits[l + 1], bytes(level)
				if ends > last then last = ends end
				if value then
					fields = fields or {}
					fields[n + 1], fields[n + 2], n = name, value, n + 2
				end
				name = limits[l + 7]
				value = char(128 + 16 * #parts + (t - t % high) / high) .. (t == now and low or six(t)) .. parts .. limits[l + 6]
			end
		end
		if fields then
			call('HSET', key, name, value, unpack(fields))
		else
			call('HSET', key, name, value)
		end
		extend(key, subjects[s], last)
	end
	c = subjects[s - 1]
end

for c = 2, free, 5 do
	local value = cells[c] or ''
	reply[said + 1], reply[said + 2], said = char(#value), value, said + 2
end
return table.concat(reply)
