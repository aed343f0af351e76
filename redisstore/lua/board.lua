-- What a process has to tell goes in, and what is new to it comes out.
--
-- KEYS[1] is a hash. Its field first says when it was begun, and last is the number
-- of the latest change. For each cool-down there is a field k<key>: when it ends, how
-- long before that it was posted or a probe of it was let go, the interval at which the
-- server admits, the change with which this round of cooling began, and how many seats
-- were given in it. If it was ever replaced there is a field r<key>: the change that did
-- so last. KEYS[2] is a sorted set: the keys by the number of their latest change.
--
-- All times are µs, those of the clock since the Unix epoch; changes are numbered by
-- the clock, so that they go up whatever is lost. All numbers are integers below 2^53,
-- and so exact. What is no such number, or larger than what is written here, is absent.
--
-- Former versions know of no r<key>, and leave it alone. They may delete k<key> and
-- leave r<key> behind, until KEYS[1] expires.
local first, since = tonumber(ARGV[1]), tonumber(ARGV[2]) -- what the caller has heard up to
-- Then the names of instructions, see below, each with its arguments.
local DAY = 86400000000
local LINGER = 10000000 -- how long a cool-down that has ended is kept
local MOST = 4096       -- cool-downs, and seats of one
local BATCH = 256       -- changes in one reply

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- number reads what was written by string.format.
local function number(text)
	local n = text and string.match(text, '^%d+$') and tonumber(text)
	if n and n <= 2 ^ 53 - 1 then return n end
end

-- replacement returns the change that replaced key's cool-down last, or 0.
local function replacement(key)
	local n = number(redis.call('HGET', KEYS[1], 'r' .. key))
	return n and n <= now + DAY and n or 0
end

-- load returns key's cool-down, ended or not.
local function load(key)
	local text = redis.call('HGET', KEYS[1], 'k' .. key) or ''
	local ends, wait, every, round, seats = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
	local c = {ends = number(ends), wait = number(wait), every = number(every), round = number(round), seats = number(seats)}
	if c.ends and c.wait and c.every and c.round and c.seats and
		c.ends <= now + 2 * DAY and c.wait <= DAY and c.every <= DAY and c.seats <= MOST then
		c.replaced = replacement(key)
		return c
	end
end

-- current returns key's cool-down, or one that is to begin.
local function current(key)
	local c = load(key)
	if c and c.ends > now then return c end
	return {ends = now, wait = 0, every = 0, seats = 0, replaced = replacement(key)}
end

-- closes is when the last seat that was given has had its first turn.
local function closes(c) return c.ends + c.seats * c.every end

-- kept is until when a cool-down is told of. What was replaced may be known to somebody
-- who has not heard of that, until it would have ended.
local function kept(c)
	local ended = closes(c) + LINGER
	if c.replaced == 0 then return ended end
	return math.max(ended, c.replaced + DAY)
end

local begun, last = number(redis.call('HGET', KEYS[1], 'first')), number(redis.call('HGET', KEYS[1], 'last'))
if not begun or not last or begun > now + DAY or last > now + DAY then begun, last = 0, 0 end
-- This fails before anything is written if it is something else. What is written there is
-- never all deleted: if it is empty, Redis has evicted it.
if redis.call('ZCARD', KEYS[2]) == 0 then begun, last = 0, 0 end

-- Nothing is written unless all may be: Redis 7 and later can be asked, and a call
-- that is not permitted raises the error that says so.
local function permitted()
	for _, call in ipairs({{'HSET', KEYS[1], 'last', '0'}, {'HDEL', KEYS[1], 'k'}, {'ZADD', KEYS[2], '0', 'k'},
		{'ZREM', KEYS[2], 'k'}, {'PEXPIRE', KEYS[1], '1'}, {'PEXPIRE', KEYS[2], '1'}}) do
		if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
	end
end

local asked = false -- whether all is permitted
local expiry = 0    -- of the last of what is written here

local function prepare()
	if not asked then permitted() end
	asked = true
end

-- save makes a change. A cool-down without a round begins one; one that does not know what
-- replaced it last is itself a replacement.
local function save(key, c)
	prepare()
	if begun == 0 then begun = now end
	last = math.max(last, now, c.round or 0, c.replaced or 0) + 1
	c.round = c.round or last
	c.replaced = c.replaced or last
	redis.call('HSET', KEYS[1], 'k' .. key,
		string.format('%.0f %.0f %.0f %.0f %.0f', c.ends, c.wait, c.every, c.round, c.seats))
	if c.replaced > 0 then redis.call('HSET', KEYS[1], 'r' .. key, string.format('%.0f', c.replaced)) end
	redis.call('ZADD', KEYS[2], string.format('%.0f', last), key)
	expiry = math.max(expiry, kept(c))
end

-- lengthen never shortens a wait, nor an interval: that of one policy is none of
-- another's.
local function lengthen(key, c, left, every, ago, changed)
	local longer, slower = now + left > c.ends, every > c.every
	if longer then c.ends, c.wait = now + left, math.min(left + ago, DAY) end
	if slower then c.every = every end
	if longer or slower or changed then save(key, c) end
end

local reply = {}
local function say(...)
	for _, v in ipairs({...}) do reply[#reply + 1] = v end
end

-- instructions are what a process may want, each with its number of arguments.
local instructions = {}

-- post makes key wait.
instructions.post = {3, function(key, left, every) lengthen(key, current(key), left, every, 0, false) end}

-- replace makes key wait for left instead of what is there, unless somebody else has
-- replaced that since the change which the caller knows of.
instructions.replace = {4, function(key, left, every, known)
	if replacement(key) <= known then save(key, {ends = now + left, wait = left, every = every, seats = 0}) end
end}

-- restore tells what Redis may have forgotten: what is left of a cool-down that was posted
-- or probed some time ago, the change that replaced it last, and its round. Of two
-- cool-downs that were replaced by different changes, the one counts that was replaced
-- later, or else has begun after that.
instructions.restore = {6, function(key, left, every, ago, replaced, round)
	if replaced > now + DAY then replaced = 0 end
	if round > now + DAY then round = 0 end
	local c = current(key)
	if replaced < c.replaced then return end
	local changed = replaced > c.replaced
	if changed then
		if not c.round or c.round < replaced then c = {ends = now, wait = 0, every = 0, seats = 0} end
		c.replaced = replaced
	end
	prepare()
	if not c.round then
		if round > 0 then c.round = round end
	elseif redis.call('ZADD', KEYS[2], 'NX', '0', key) == 1 then -- that was evicted
		changed = true
	end
	lengthen(key, c, left, every, ago, changed)
end}

-- claim says the number of a seat whose first turn is yet to come, or -1.
instructions.claim = {2, function(key, round)
	local c = load(key)
	if not c or c.round ~= round or c.seats >= MOST or closes(c) <= now then return say(-1) end
	c.seats = c.seats + 1
	save(key, c)
	say(c.seats - 1)
end}

-- probe says 1 if the caller may send a request although key cools down, or 0. Each is
-- so long after the one before, or after the post, and there is more than that left.
instructions.probe = {2, function(key, apart)
	local c = load(key)
	local left = c and c.ends - now
	if not c or left <= apart then return say(0) end
	if left > c.wait then -- the clock has gone back: it counts from now
		c.ends = now + c.wait
		save(key, c)
		return say(0)
	end
	if c.wait - left < apart then return say(0) end
	c.wait = left
	save(key, c)
	say(1)
end}

-- forget makes room: of those that changed longest ago, what is not kept goes, and
-- what is too much.
local function forget()
	local surplus = redis.call('ZCARD', KEYS[2]) - MOST
	for i, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, math.max(10, surplus) - 1)) do
		local c = load(key)
		if i <= surplus or not c or kept(c) < now then
			redis.call('HDEL', KEYS[1], 'k' .. key, 'r' .. key)
			redis.call('ZREM', KEYS[2], key)
		end
	end
end

local at = 3
while at <= #ARGV do
	local count, run = unpack(instructions[ARGV[at]])
	local numbers = {}
	for i = at + 2, at + count do numbers[#numbers + 1] = tonumber(ARGV[i]) end
	run(ARGV[at + 1], unpack(numbers))
	at = at + count + 1
end

local refusal = '' -- of a notification
if expiry > 0 then
	redis.call('HSET', KEYS[1], 'first', string.format('%.0f', begun), 'last', string.format('%.0f', last))
	forget()
	local ttl = math.min(math.max(redis.call('PTTL', KEYS[1]), math.ceil((expiry - now) / 1000)), 2 * DAY / 1000)
	redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl))
	redis.call('PEXPIRE', KEYS[2], string.format('%.0f', ttl))
	local heard = redis.pcall('PUBLISH', KEYS[1], '')
	if type(heard) == 'table' then refusal = heard.err end
end

if begun ~= first or last < since then since = 0 end
local changes = redis.call('ZRANGEBYSCORE', KEYS[2], string.format('(%.0f', since), string.format('%.0f', last),
	'WITHSCORES', 'LIMIT', 0, BATCH)
local upto = last
if #changes == 2 * BATCH then upto = tonumber(changes[#changes]) end
for i = 1, #changes, 2 do
	local c = load(changes[i])
	if c and kept(c) > now then
		local left = math.min(c.ends - now, c.wait)
		say(changes[i], c.ends, left, c.every, c.round, c.seats, c.wait - left, c.replaced)
	end
end
return {begun, last, upto, refusal, unpack(reply)}
