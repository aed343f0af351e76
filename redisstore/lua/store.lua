-- KEYS are the Keys of a batch, and the sorted sets of the IDs of charges, by the time when they are
-- forgotten. ARGV is:
--
--   the number of limits, and each as "NAME\tSHAPE ALGORITHM CAPACITY DEBT WINDOW", and for a Calendar also
--   the starts of six windows, of which now is in the second or third
--
--   the calls, each made together or not at all, as a verb (take, peek, reserve, query, settle or undo), with
--   the longest wait of a reserve or of a query, which is a reserve that changes nothing, and its charges, each as "KEY LIMIT UNITS ", counted from 1: "t 1 1 5 ". After
--   the units may be a, and then the time when it was charged; and i, and then the set of its ID, the
--   length of the ID and the ID: "s 1 1 -5ai 1764153000000000 2 3 abc "
--
-- The value of a Key is a line "NAME\tSHAPE LAST TIME LEVEL[ PREV AHEAD LOG]" for each state; LAST is until when it
-- is kept. NAME begins with a tab in dry runs. Limits of one NAME but different SHAPEs, from
-- two versions of a program, count beside each other: each decides by its own state, and what is
-- charged is charged on both. (The state of a Calendar goes with its window, the only one that the others know.)
--
-- The reply is a text of numbers: now, how many lines were invalid, and how many were forgotten because a
-- value was too long; and for each charge 1 if it fits, 2 if its ID was charged before, or 0, and the time
-- and level of the state that it found, which includes what earlier charges of the call took. If the 0, 1
-- or 2 is 4 higher, prev, ahead and the log follow; if it is 8 higher, the state begins with that of another shape. If now is not in the given windows of a Calendar, the
-- reply is only now, and nothing was done.
local LONGEST = 65536 -- bytes of a value
local SHAPES = 16     -- of one name
local GRACE = 1000    -- ms that a key is kept longer, because clocks are coarse

local kinds, made = {b = bucket, f = fixed, c = fixed, s = sliding, l = slidingLog}, {}

-- shaped returns what a shape says about a limit, or nil if it is invalid.
local function shaped(shape)
	local kind, x, y, z = match(shape, '^(%l)(%d*),?(%d*),?(%d*)')
	x, y, z = tonumber(x) or 0, tonumber(y) or 0, tonumber(z) or 0
	if x > exact or y > exact or z > exact then return end
	local l = { -- with room for all fields, so that it never grows
		unit = 1, most = exact, tick = nil, rate = nil, window = nil, drain = nil, try = nil, settle = nil, full = nil,
		name = nil, shape = nil, leaky = nil, capacity = nil, debt = nil, remembers = nil, starts = nil,
	}
	if kind == 'b' and x > 0 and y > 0 and z > 0 then
		l.tick, l.rate, l.unit = x, y, z
		l.most = between(y * floor(4503599627370496 / x), exact) -- 142 years
	elseif kind == 's' and x > 0 and y >= x then
		l.tick, l.window, l.most = x, y, floor(exact / (y / x))
	elseif kind == 'l' and x > 0 then
		l.window, l.most = x, 65535
	elseif kind == 'f' and x > 0 then
		l.window = x
	elseif kind ~= 'c' then
		return
	end
	if not made[kind] then made[kind] = {kinds[kind]()} end
	local functions = made[kind]
	l.drain, l.try, l.settle, l.full = functions[1], functions[2], functions[3], functions[4]
	return l
end

local limits, count = {}, ARGV[1] + 0
for i = 1, count do
	local name, shape, algorithm, capacity, debt, remembers, starts =
		match(ARGV[i + 1], '^(\t?[^\t]*)\t(%S+) (%d) (%d+) (%d+) (%d+)(.*)$')
	local l = shaped(shape)
	l.name, l.shape, l.leaky = name, shape, algorithm == '1'
	l.capacity, l.debt, l.remembers = capacity + 0, debt + 0, remembers + 0
	if starts ~= '' then
		l.starts = {}
		for start in string.gmatch(starts, '%-?%d+') do l.starts[#l.starts + 1] = start + 0 end
		if now < l.starts[1] or now >= l.starts[4] then return format('%d ', now) end
	end
	limits[i .. ''] = l
end

local keys, loaded, corrupt, forgotten = {}, {}, 0, 0

-- find returns the record of a limit in a Key, or nil. A record is a state with where it is from; without a time
-- there is none yet. By a name a Key has the first record of all shapes, and each has the next.
local function find(key, name, shape)
	local r = key.first[name]
	while r and r.shape ~= shape do r = r.next end
	return r
end

local function add(key, r)
	r.key, r.next = key, key.first[r.name]
	key[#key + 1], key.first[r.name] = r, r
	return r
end

-- parse returns the record in the parts of a line, or nil if they are invalid.
local function parse(name, shape, last, time, level, rest)
	local prev, ahead, log, ends = 0, 0, ''
	if rest ~= '' then
		prev, ahead, log = match(rest, '^ (%d+) (%d+) (%d*)$')
		if not prev then return end
		prev, ahead = prev + 0, ahead + 0
		if byte(shape) == 99 then ends, prev = prev, 0 end -- "c": of a Calendar, when its window ends
	end
	last, time, level = last + 0, time + 0, level + 0
	if last > exact or time > exact or level > exact or prev > exact or ahead > day or not kinds[sub(shape, 1, 1)] then
		return
	end
	if byte(shape) == 99 and (not ends or ends <= time) then return end
	local size = #log
	if size > 0 and (size % ENTRY > 0 or level > 65535 or timeOf(log, size - ENTRY + 1) ~= time) then return end
	return {
		key = nil, next = nil, name = name, shape = shape, last = last, time = time, level = level, prev = prev, ahead = ahead,
		log = log, ends = ends, by = nil,
	}
end

-- load reads the Key with an index in KEYS.
local function load(i)
	local name, pos = KEYS[i + 0], 1
	local value = call('GET', name)
	local key = {text = value, key = name, changed = false, first = {}} -- first is by the names of limits
	keys[i], loaded[#loaded + 1] = key, key
	while value and pos <= #value do
		local name, shape, last, time, level, rest, past =
			match(value, '^(\t?[^\t\n]*)\t(%S+) (%d+) (%d+) (%d+)([^\n]*)\n()', pos)
		local r = name and parse(name, shape, last, time, level, rest)
		if r and not find(key, name, shape) then
			add(key, r)
		else
			corrupt = corrupt + 1
			past = past or (string.find(value, '\n', pos, true) or #value) + 1
		end
		pos = past
	end
	return key
end

-- others returns the states of other shapes than r's for the call c, as of now, and whether one of them owes
-- anything.
local function others(r, c)
	local list, owe, other = {}, false, r.key.first[r.name]
	while other do
		local l = other.by or shaped(other.shape)
		local s = other.call == c and other.draft or other
		if other ~= r and l and s.time and not (other.ends and other.ends <= now) then
			if other.ends and not l.starts then l.starts = {s.time, other.ends} end
			other.by = l
			local time, level, prev, ahead, log = l.drain(l, s.time, s.level, s.prev, s.ahead, s.log)
			local owes = l.full(l, time, level, prev, ahead, log) > now
			list[#list + 1] = {of = other, owes = owes, time = time, level = level, prev = prev or 0, ahead = ahead or 0, log = log or ''}
			owe = owe or owes
		end
		other = other.next
	end
	return list, owe
end

-- adopt returns the state for a limit that has none yet: what the one of others says that owes most.
local function adopt(l, list)
	local time, level, prev, ahead, log
	for _, s in ipairs(list) do
		local unit, n = s.of.by.unit, s.level
		if unit ~= l.unit then n = ceil(n / unit) * l.unit end -- rounded up to a unit
		if l.rate then n = n + s.prev * l.unit end
		local t, p, a, entries
		t, n, p, a, entries = l.drain(l, s.time, between(n, l.most), s.prev, s.ahead, s.log)
		p, a, entries = p or 0, a or 0, entries or ''
		if s.owes and (not time or n > level or n == level and (p > prev or p == prev and (t > time or t == time and entries > log))) then
			time, level, prev, ahead, log = t, n, p, a, entries
		end
	end
	return time, level, prev, ahead, log
end

-- store makes a state that of r.
local function store(r, l, time, level, prev, ahead, log)
	r.by, r.time, r.level, r.prev, r.ahead, r.log, r.key.changed = l, time, level, prev, ahead, log, true
	if not time then
		r.last = 0
		return
	end
	local full = l.full(l, time, level, prev, ahead, log)
	if full > r.last and full > now then -- a little longer, so that most calls need not set when the Key expires
		r.last, r.key.lasts = full + between(floor((full - now) / 16), day) + 1000000, true
	end
	if l.starts then
		local _, ends = window(l, time)
		r.ends = ends
	end
end

-- drafts are what a call of several charges changes, from 1 to changes, until it is known that it is made.
local drafts, changes = {}, 0

local function draft(r, c, l, time, level, prev, ahead, log)
	if r.call ~= c then
		changes = changes + 1
		drafts[changes] = r
	end
	r.call, r.draft = c, {by = l, time = time, level = level, prev = prev, ahead = ahead, log = log}
end

local ids = {}

-- identity returns what is known of an ID, which it reads once.
local function identity(id, set, l)
	local member = l.name .. '\n' .. id
	local name = #set .. ' ' .. set .. member -- a Key may have any bytes
	if not ids[name] then
		local score = call('ZSCORE', set, member)
		ids[#ids + 1] = {set = set, member = member, known = score and tonumber(score) > now}
		ids[name] = ids[#ids]
	end
	return ids[name]
end

local reply = {''}

for c = count + 2, #ARGV do
	local plan, allowed = ARGV[c], true
	local verb, within, pos = match(plan, '^(%l)(%d*) ()')
	local settles, asks = verb == 's' or verb == 'u', verb == 'p' or verb == 'q'
	within, changes = (verb == 'r' or verb == 'q') and within + 0, 0
	local several = asks
	while pos <= #plan do
		local k, which, n, flags, past = match(plan, '^(%d+) (%d+) (%-?%d+)(%l*) ()', pos)
		local l, key, at, id = limits[which], keys[k] or load(k)
		n = n + 0
		if flags ~= '' then
			several = true
			if byte(flags) == 97 then -- "a"
				at, past = match(plan, '^(%d+) ()', past)
				at = at + 0
			end
			if byte(flags, -1) == 105 then -- "i"
				local set, length, from = match(plan, '^(%d+) (%d+) ()', past)
				id, past = identity(sub(plan, from, from + length - 1), KEYS[set + 0], l), from + length + 1
				if verb == 'u' then id.known, id.expires, id.drop, id.call = false, nil, true, nil end
			end
		end
		pos, several = past, several or past <= #plan

		local r = find(key, l.name, l.shape) or add(key, {name = l.name, shape = l.shape, last = 0, time = nil, level = nil, key = nil, by = nil})
		local alone = not r.next and key.first[l.name] == r
		local time, level, prev, ahead, log, list, owe
		if not alone then list, owe = others(r, c) end
		if r.call == c then
			local d = r.draft
			time, level, prev, ahead, log = d.time, d.level, d.prev, d.ahead, d.log
		elseif r.time and not (r.ends and r.ends <= now) then
			time, level, prev, ahead, log = r.time, r.level, r.prev, r.ahead, r.log
		elseif not alone then
			time, level, prev, ahead, log = adopt(l, list)
		end
		local adopted = not (r.call == c or r.time) and time
		time, level, prev, ahead, log = l.drain(l, time, level, prev, ahead, log)

		local outcome, time2, level2, prev2, ahead2, log2 = 1
		if id and (id.known or id.call == c) then
			outcome = 2
		elseif settles then
			time2, level2, prev2, ahead2, log2 = l.settle(l, n, at, l.debt, time, level, prev, ahead, log)
		else
			time2, level2, prev2, ahead2, log2 = l.try(l, n, within, time, level, prev, ahead, log)
			if not time2 then
				outcome = 0
				allowed = allowed and byte(l.name) == 9 -- a tab: of a dry run
			end
		end
		if adopted then outcome = outcome + 8 end
		if prev then
			reply[#reply + 1] = format('%d %d %d %d %d %s ', outcome + 4, time, level, prev, ahead, log)
		else
			reply[#reply + 1] = format('%d %d %d ', outcome, time, level)
		end
		if time2 and alone and not several then
			store(r, l, time2, level2, prev2, ahead2, log2)
		elseif time2 then
			draft(r, c, l, time2, level2, prev2, ahead2, log2)
			-- What is charged is charged on all, but no more than this limit allows at once.
			owe = owe or list and l.full(l, time, level, prev, ahead, log) > now
			for i = 1, list and #list or 0 do
				local o = list[i]
				local by = o.of.by
				if owe then
					local spare, units = floor(l.capacity / l.unit) - ceil(o.level / by.unit), n
					if n > 0 then units = between(n, between(spare, exact)) elseif spare < 0 then units = 0 end -- not charged, not given back
					draft(o.of, c, by, by.settle(by, units, settles and at, by.most, o.time, o.level, o.prev, o.ahead, o.log))
				else
					draft(o.of, c, by) -- gone
				end
			end
			if id and verb ~= 'u' then
				id.call, id.until2 = c, l.starts and select(2, window(l, now)) or now + l.remembers
				changes = changes + 1
				drafts[changes] = id
			end
		end
	end
	for i = 1, allowed and not asks and changes or 0 do
		local r, d = drafts[i], drafts[i].draft
		if d then
			store(r, d.by, d.time, d.level, d.prev, d.ahead, d.log)
		else
			r.known, r.expires = true, r.until2
		end
	end
end

-- line returns r as a line of a value. A record is kept until all of its name are full, so that none that is
-- full already starts again from one that is not; of others the line is empty.
local function line(r)
	local other, last = r.key.first[r.name], 0
	while r.time and other do
		if other.last > last then last = other.last end
		other = other.next
	end
	if last <= now then return '' end
	local prev, ahead, log = r.ends or r.prev or 0, r.ahead or 0, r.log or ''
	if prev == 0 and ahead == 0 and log == '' then
		return format('%s\t%s %d %d %d\n', r.name, r.shape, r.last, r.time, r.level)
	end
	return format('%s\t%s %d %d %d %d %d %s\n', r.name, r.shape, r.last, r.time, r.level, prev, ahead, log)
end

-- An error must come before anything is written: the calls of a batch that failed are sent again.
local writes = {}

for _, key in ipairs(loaded) do
	if key.changed then
		local value, last, shapes = '', now, {}
		if #key > 1 then table.sort(key, function(a, b) return a.last > b.last end) end
		for _, r in ipairs(key) do
			local text = line(r)
			shapes[r.name] = (shapes[r.name] or 0) + 1
			if shapes[r.name] > SHAPES then text = '' end
			if #value + #text > LONGEST then
				forgotten = forgotten + 1
			else
				value = value .. text
				if text ~= '' and r.last > last then last = r.last end
			end
		end
		if value == '' and not key.text then
			-- nothing is owed
		elseif key.lasts or value == '' then
			writes[#writes + 1] = {'SET', key.key, value, 'PX', format('%d', ceil((last - now) / 1000) + GRACE)}
		else
			writes[#writes + 1] = {'SET', key.key, value, 'KEEPTTL'}
		end
	end
end
-- IDs come first: if the user may not write them, nothing was charged.
for _, id in ipairs(ids) do
	if id.expires then
		call('ZREMRANGEBYSCORE', id.set, '-inf', format('%d', now))
		call('ZADD', id.set, format('%d', id.expires), id.member)
		local ttl = ceil((id.expires - now) / 1000) + GRACE
		if call('PTTL', id.set) < ttl then call('PEXPIRE', id.set, ttl) end
	elseif id.drop then
		call('ZREM', id.set, id.member)
	end
end

for _, write in ipairs(writes) do call(unpack(write)) end
reply[1] = format('%d %d %d ', now, corrupt, forgotten)
return table.concat(reply)
