-- KEYS are the hashes of Keys, and the sorted sets of the IDs of charges, by the time when they are
-- forgotten. ARGV is:
--
--   the number of limits, and for each: name, algorithm, tick, rate, window, capacity, most and unit;
--   for a Calendar, whose window is 0, also the starts of six windows, of which now is in the second
--   or third
--
--   the calls, each made together or not at all: take, peek, reserve, settle or revoke; for a reserve
--   how long it may wait; the number of charges; and for each: the index of its key in KEYS, the index
--   of its limit, units, and flags. Flag d is a dry run; after flag a comes the time when it was
--   charged; after flag i come its ID and the index of the ID's set in KEYS
--
-- The reply is now, and the number of invalid values; for each call 1 if its charges fit, or 0; and for
-- each charge 1 if it fits, 2 if its ID was charged before, or 0, with the time, level, prev and log of
-- the state that it found, which includes what earlier charges of the call took. If another limit
-- counted one of those, the 0, 1 or 2 is 4 higher, and the same of the state without them follows. If
-- now is not in the given windows of a Calendar, the reply is only now, and nothing was done.
local position = 0
local function text()
	position = position + 1
	return ARGV[position]
end
local function int()
	position = position + 1
	return tonumber(ARGV[position])
end

local kinds = {[0] = bucket, bucket, fixed, sliding, log}
local limits = {}
for i = 1, int() do
	local name, kind = text(), int()
	local limit = {
		name = name, kind = kinds[kind], leaky = kind == 1, tick = int(), rate = int(), window = int(),
		capacity = int(), most = int(), unit = int(),
	}
	if kind == 2 and limit.window == 0 then
		limit.starts = {int(), int(), int(), int(), int(), int()}
		if now < limit.starts[1] or now >= limit.starts[4] then return {now} end
	end
	limits[i] = limit
end

local fields, found, corrupt = {}, {}, 0

-- field returns the field of a limit in the hash key, and reads it once. Its limit is set when it must
-- be written.
local function field(key, limit, dry)
	local name = dry and limit.name .. '\tdry' or limit.name
	local of = found[key]
	if not of then
		of = {}
		found[key] = of
	end
	local f = of[name]
	if not f then
		local kept = call('HGET', key, name)
		f = {key = key, name = name, state = kept and parse(kept) or nil}
		if kept and not f.state then corrupt = corrupt + 1 end
		of[name], fields[#fields + 1] = f, f
	end
	return f
end

local ids, known = {}, {}

-- identity returns the entry of an ID, and reads it once. Its known is true if it was charged before.
local function identity(id, set, limit, dry)
	local member = limit.name .. '\t' .. (dry and 1 or 0) .. id
	local name = set .. '\n' .. member
	if not known[name] then
		local score = call('ZSCORE', set, member)
		known[name] = {set = set, member = member, known = score and tonumber(score) > now}
		ids[#ids + 1] = known[name]
	end
	return known[name]
end

-- expiry returns when an ID that is charged now is forgotten.
local function expiry(limit)
	if limit.starts then return select(2, window(limit, now)) end
	return now + (limit.window > 0 and limit.window or 1)
end

local function same(a, b)
	return a.time == b.time and a.level == b.level and a.prev == b.prev and a.log == b.log
end

local reply, filled = {now, 0}, 2

-- add adds s to the reply.
local function add(s)
	reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4] = s.time, s.level, s.prev, s.log
	filled = filled + 4
end

local undo, undos

-- update sets the state of f to s, as counted by limit, and marks id, if there is one, as charged. If the
-- call may be undone, it saves the old state in undo.
local function update(f, s, limit, id)
	if undo then
		undos = undos + 1
		undo[undos] = {f, f.state, f.limit, id, id and id.known, id and id.expires}
	end
	if s ~= f.state then f.state, f.limit = s, limit end
	if id then id.known, id.expires = true, expiry(limit) end
end

-- restore undoes the updates of a call.
local function restore()
	for i = undos, 1, -1 do
		local was = undo[i]
		local f, id = was[1], was[4]
		f.state, f.limit = was[2], was[3]
		if id then id.known, id.expires = was[5], was[6] end
	end
end

while position < #ARGV do
	local verb = text()
	local within = verb == 'reserve' and int() or nil
	local count = int()
	local settles, allowed = verb == 'settle' or verb == 'revoke', true
	filled = filled + 1
	local answer = filled
	undo, undos = (count > 1 or verb == 'peek') and {} or nil, 0
	for i = 1, count do
		local key, limit, n, flags = KEYS[int()], limits[int()], int(), text()
		local dry = flags ~= '' and find(flags, 'd', 1, true) ~= nil
		local at = flags ~= '' and find(flags, 'a', 1, true) and int() or nil
		local f, kind, outcome, after, id = field(key, limit, dry), limit.kind, 1
		if flags ~= '' and find(flags, 'i', 1, true) then
			id = identity(text(), KEYS[int()], limit, dry)
			if verb == 'revoke' then id.known, id.expires, id.drop = false, nil, true end
		end
		local s = kind.drain(limit, f.state)
		if id and id.known then
			outcome = 2
		elseif settles then
			after = kind.settle(limit, s, n, at)
			if same(after, s) then after = f.state end -- nothing to write
		else
			after = kind.try(limit, s, n, within)
			if not after then outcome, allowed = 0, allowed and dry end
		end
		if f.call ~= answer then f.call, f.before, f.by = answer, f.state, limit end
		filled = filled + 1
		reply[filled] = f.by == limit and outcome or outcome + 4
		add(s)
		if f.by ~= limit then add(kind.drain(limit, f.before)) end
		if after or settles and outcome == 1 then
			update(f, after, limit, verb ~= 'revoke' and id or nil)
		end
	end
	reply[answer] = allowed and 1 or 0
	if verb == 'peek' or not allowed then restore() end
end
reply[2] = corrupt

-- All commands must be permitted before the first one, so that a script writes all or nothing.
for _, f in ipairs(fields) do
	if f.limit then
		permit('HSET', f.key, 'field', 'value')
		permit('PTTL', f.key)
		permit('PEXPIRE', f.key, '1')
		break
	end
end
for _, id in ipairs(ids) do
	if id.expires then
		permit('ZREMRANGEBYSCORE', id.set, '0', '1')
		permit('ZADD', id.set, '1', 'member')
		permit('PTTL', id.set)
		permit('PEXPIRE', id.set, '1')
	elseif id.drop then
		permit('ZREM', id.set, 'member')
	end
end

local fullAt = {}
for _, f in ipairs(fields) do
	if f.limit then
		call('HSET', f.key, f.name, value(f.state))
		local at = f.limit.kind.full(f.limit, f.state)
		if at > (fullAt[f.key] or 0) then fullAt[f.key] = at end
	end
end
for key, at in pairs(fullAt) do extend(key, at) end
for _, id in ipairs(ids) do
	if id.expires then
		call('ZREMRANGEBYSCORE', id.set, '-inf', digits(now))
		call('ZADD', id.set, digits(id.expires), id.member)
		extend(id.set, id.expires)
	elseif id.drop then
		call('ZREM', id.set, id.member)
	end
end
return reply
