-- What a process posts goes in, and what is new to it comes out.
--
-- KEYS[1] is a hash. Its field first says when it was begun, and last is the number
-- of the latest change. For each cool-down there is a field k<key>: when it ends, how
-- long the server asked to wait, the interval at which the server admits, the change
-- with which this round of cooling began, and how many seats were given in it. KEYS[2]
-- is a sorted set: the keys by the number of their latest change.
--
-- All times are µs, those of the clock since the Unix epoch; changes are numbered by
-- the clock, so that they go up whatever is lost. All numbers are integers below 2^53,
-- and so exact. What is no such number, or larger than what is written here, is absent.
local first, since = tonumber(ARGV[1]), tonumber(ARGV[2]) -- what the caller has heard up to
local posts = tonumber(ARGV[3])                           -- then (key, wait, every) for each,
                                                          -- and (key, round) for each seat it claims
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

-- load returns key's cool-down, ended or not.
local function load(key)
	local text = redis.call('HGET', KEYS[1], 'k' .. key) or ''
	local ends, wait, every, round, seats = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
	local c = {ends = number(ends), wait = number(wait), every = number(every), round = number(round), seats = number(seats)}
	if c.ends and c.wait and c.every and c.round and c.seats and
		c.ends <= now + 2 * DAY and c.wait <= DAY and c.every <= DAY and c.seats <= MOST then
		return c
	end
end

-- closes is when the last seat that was given has had its first turn.
local function closes(c) return c.ends + c.seats * c.every end

local begun, last = number(redis.call('HGET', KEYS[1], 'first')), number(redis.call('HGET', KEYS[1], 'last'))
if not begun or not last or begun > now + DAY or last > now + DAY then begun, last = 0, 0 end
redis.call('ZCARD', KEYS[2]) -- fails before anything is written if it is something else

-- Nothing is written unless all may be: Redis 7 and later can be asked, and a call
-- that is not permitted raises the error that says so.
local function permitted()
	for _, call in ipairs({{'HSET', KEYS[1], 'last', '0'}, {'HDEL', KEYS[1], 'k'}, {'ZADD', KEYS[2], '0', 'k'},
		{'ZREM', KEYS[2], 'k'}, {'PEXPIRE', KEYS[1], '1'}, {'PEXPIRE', KEYS[2], '1'}}) do
		if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
	end
end

local longest = 0 -- until the last of what is written here ends

local function save(key, c)
	if longest == 0 then
		permitted()
		if begun == 0 then begun = now end
		last = math.max(last, now)
	end
	last = last + 1
	if not c.round then c.round = last end
	redis.call('HSET', KEYS[1], 'k' .. key,
		string.format('%.0f %.0f %.0f %.0f %.0f', c.ends, c.wait, c.every, c.round, c.seats))
	redis.call('ZADD', KEYS[2], string.format('%.0f', last), key)
	longest = math.max(longest, closes(c) - now)
end

-- post makes key wait. It never shortens a wait, nor an interval: that of one policy is
-- none of another's.
local function post(key, wait, every)
	local c = load(key)
	if not c or c.ends <= now then c = {ends = 0, every = 0, seats = 0} end
	local longer, slower = now + wait > c.ends, every > c.every
	if longer then c.ends, c.wait = now + wait, wait end
	if slower then c.every = every end
	if longer or slower then save(key, c) end
end

-- claim returns the number of a seat whose first turn is yet to come, or -1.
local function claim(key, round)
	local c = load(key)
	if not c or c.round ~= round or c.seats >= MOST or closes(c) <= now then return -1 end
	c.seats = c.seats + 1
	save(key, c)
	return c.seats - 1
end

-- forget makes room: of those that changed longest ago, what has ended goes, and
-- what is too much.
local function forget()
	local surplus = redis.call('ZCARD', KEYS[2]) - MOST
	for i, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, math.max(10, surplus) - 1)) do
		local c = load(key)
		if i <= surplus or not c or closes(c) + LINGER < now then
			redis.call('HDEL', KEYS[1], 'k' .. key)
			redis.call('ZREM', KEYS[2], key)
		end
	end
end

local reply = {}
local function say(...)
	for _, v in ipairs({...}) do reply[#reply + 1] = v end
end

local at = 4
for _ = 1, posts do
	post(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
	at = at + 3
end
for i = at, #ARGV, 2 do
	say(claim(ARGV[i], tonumber(ARGV[i + 1])))
end

local refusal = '' -- of a notification
if longest > 0 then
	redis.call('HSET', KEYS[1], 'first', string.format('%.0f', begun), 'last', string.format('%.0f', last))
	forget()
	local ttl = math.min(math.max(redis.call('PTTL', KEYS[1]), math.ceil((longest + LINGER) / 1000)), 2 * DAY / 1000)
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
	if c and closes(c) + LINGER > now then
		say(changes[i], c.ends, math.min(c.ends - now, c.wait), c.every, c.round, c.seats)
	end
end
return {begun, last, upto, refusal, unpack(reply)}
