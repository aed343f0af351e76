-- One sync of one process: its operations go in, and what has changed comes out.
--
-- KEYS[1] is a hash. Its field first says when it was begun, and last is the number of the
-- latest change. Each cool-down has a field k<key> of six numbers:
--   ends      when it ends
--   wait      how long before its end it was posted, or a probe of it was granted
--   every     the interval at which the server admits requests, 0 if unknown
--   round     the change that began it
--   slots     how many slots in the interval were given since
--   replaced  the change that replaced it last, 0 if none did
-- KEYS[2] is a sorted set: the keys by the number of their latest change.
--
-- All times are µs since the Unix epoch by Redis' clock, which changes are numbered by as
-- well: so numbers go up even if Redis has lost some. All are integers below 2^53, and so
-- exact. A field that has any other number, or one larger than is written here, is absent.
local first, since = tonumber(ARGV[1]), tonumber(ARGV[2]) -- the caller knows what changed up to here
-- Then come operations, of seven arguments each: a name, a key, and
local ARGUMENTS = {'left', 'every', 'ago', 'round', 'replaced'}

local DAY = 86400000000
local KEEP = 10000000 -- how long a cool-down is kept when it is over, for processes that sync late
local MOST = 4096     -- cool-downs, and slots of one
local BATCH = 256     -- changes in one reply

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- number returns what text says, or nil if it is no integer from 0 to below 2^53.
local function number(text)
	local n = text and string.match(text, '^%d+$') and tonumber(text)
	if n and n < 2 ^ 53 then return n end
end

-- Neither key is ever emptied. One that is empty was evicted, so the other is out of date.
local begun, last = number(redis.call('HGET', KEYS[1], 'first')), number(redis.call('HGET', KEYS[1], 'last'))
if redis.call('ZCARD', KEYS[2]) == 0 or not begun or not last or math.max(begun, last) > now + DAY then
	begun, last = 0, 0
end

-- load returns key's cool-down, over or not, or nil.
local function load(key)
	local c, text = {}, begun > 0 and redis.call('HGET', KEYS[1], 'k' .. key) or ''
	c.ends, c.wait, c.every, c.round, c.slots, c.replaced = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
	for name, digits in pairs(c) do
		c[name] = number(digits)
		if not c[name] then return end
	end
	if c.ends and c.ends <= now + 2 * DAY and c.wait <= DAY and c.every <= DAY and c.slots <= MOST
		and c.replaced <= now + DAY then return c end
end

local function fresh(replaced) return {ends = now, wait = 0, every = 0, slots = 0, replaced = replaced} end

-- current returns key's cool-down, or one that is to begin.
local function current(key)
	local c = load(key)
	if c and c.ends > now then return c end
	return fresh(c and c.replaced or 0)
end

-- closes is when the first request of the last slot is let go.
local function closes(c) return c.ends + c.slots * c.every end

-- kept is until when processes are told of c: if it was replaced, until nobody can believe
-- in what was there before.
local function kept(c)
	return math.max(closes(c) + KEEP, c.replaced > 0 and c.replaced + DAY or 0)
end

local expiry = 0 -- when the last of what is written here may be forgotten, 0 if nothing is written

-- prepare fails unless all of this may be written: a call that is not permitted raises the
-- error that says so. Redis 6.2 cannot be asked.
local function prepare()
	for _, call in ipairs({{'HSET', KEYS[1], 'last', '0'}, {'HDEL', KEYS[1], 'k'}, {'ZADD', KEYS[2], '0', 'k'},
		{'ZREM', KEYS[2], 'k'}, {'PEXPIRE', KEYS[1], '1'}, {'PEXPIRE', KEYS[2], '1'}, {'DEL', KEYS[1], KEYS[2]}}) do
		if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
	end
	if begun == 0 then
		redis.call('DEL', KEYS[1], KEYS[2])
		begun = now
	end
end

-- An older copy of what the caller knows begins anew as it is, so that all notice.
if begun > 0 and begun == first and last < since then
	prepare()
	begun, expiry = math.max(begun + 1, now), now + 1
end

-- save makes a change. It numbers what c is to be known by: its round, and if that is
-- missing its replacement.
local function save(key, c)
	if expiry == 0 then prepare() end
	last = math.max(last, now, c.round or 0, c.replaced or 0) + 1
	c.round, c.replaced = c.round or last, c.replaced or last
	redis.call('HSET', KEYS[1], 'k' .. key, string.format('%.0f %.0f %.0f %.0f %.0f %.0f',
		c.ends, c.wait, c.every, c.round, c.slots, c.replaced))
	redis.call('ZADD', KEYS[2], string.format('%.0f', last), key)
	expiry = math.max(expiry, kept(c))
end

-- lengthen never shortens a wait, nor an interval: those of one policy say nothing about
-- another's.
local function lengthen(key, c, op, changed)
	if now + op.left > c.ends then
		c.ends, c.wait, changed = now + op.left, math.min(op.left + op.ago, DAY), true
	end
	if op.every > c.every then c.every, changed = op.every, true end
	if changed then save(key, c) end
end

-- The operations return their answers; 0 stands for none.
local operations = {}

-- post makes key wait.
function operations.post(key, op) lengthen(key, current(key), op, false) end

-- replace makes key wait for left instead of what is there; unless that was replaced since
-- the replacement that the caller knows of, if it is not negative.
function operations.replace(key, op)
	if op.replaced < 0 or current(key).replaced <= op.replaced then
		save(key, {ends = now + op.left, wait = op.left, every = op.every, slots = 0})
	end
end

-- restore brings what Redis may have lost. Of two cool-downs with different replacements
-- the one counts that was replaced later, or began after that.
function operations.restore(key, op)
	local c = current(key)
	local replaced, round = op.replaced, op.round
	if replaced > now + DAY then replaced = 0 end
	if round > now + DAY then round = 0 end
	if replaced < c.replaced then return end
	local changed = replaced > c.replaced
	if changed and c.round and c.round < replaced then c = fresh(0) end
	c.replaced = replaced
	if round > 0 then c.round = c.round or round end
	lengthen(key, c, op, changed)
end

-- claim returns the number of a slot whose first request is yet to be let go, or -1.
function operations.claim(key, op)
	local c = load(key)
	if not c or c.round ~= op.round or c.slots >= MOST or closes(c) <= now then return -1 end
	c.slots = c.slots + 1
	save(key, c)
	return c.slots - 1
end

-- probe returns 1 if the caller may send a request although key cools down: every so often,
-- counted from the post, and if more than that is left.
function operations.probe(key, op)
	local c = load(key)
	local left = c and c.ends - now
	if not c or left <= op.every then return 0 end
	local stepped = left > c.wait -- the clock has gone back: the wait begins anew
	if stepped then c.ends = now + c.wait end
	if not stepped and c.wait - left < op.every then return 0 end
	c.wait = math.min(c.wait, left)
	save(key, c)
	return stepped and 0 or 1
end

-- forget makes room: of those that changed longest ago, what is kept no longer goes, and
-- what is too much.
local function forget()
	local surplus = redis.call('ZCARD', KEYS[2]) - MOST
	for i, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, math.max(10, surplus) - 1)) do
		local c = load(key)
		if i <= surplus or not c or kept(c) < now then
			redis.call('HDEL', KEYS[1], 'k' .. key)
			redis.call('ZREM', KEYS[2], key)
		end
	end
end

local reply = {0, 0, 0, ''} -- begun, last, upto, and why nobody could be notified; answers and changes follow
local function add(...)
	for _, v in ipairs({...}) do reply[#reply + 1] = v end
end

for at = 3, #ARGV, 2 + #ARGUMENTS do
	local op = {}
	for i, name in ipairs(ARGUMENTS) do op[name] = tonumber(ARGV[at + 1 + i]) end
	add(operations[ARGV[at]](ARGV[at + 1], op) or 0)
end

if expiry > 0 then
	redis.call('HSET', KEYS[1], 'first', string.format('%.0f', begun), 'last', string.format('%.0f', last))
	forget()
	local ttl = math.min(math.max(redis.call('PTTL', KEYS[1]), math.ceil((expiry - now) / 1000)), 2 * DAY / 1000)
	for _, key in ipairs({KEYS[1], KEYS[2]}) do redis.call('PEXPIRE', key, string.format('%.0f', ttl)) end
	local published = redis.pcall('PUBLISH', KEYS[1], '')
	if type(published) == 'table' then reply[4] = published.err end
end

if begun ~= first then since = 0 end
local changes = redis.call('ZRANGEBYSCORE', KEYS[2], string.format('(%.0f', since), string.format('%.0f', last),
	'WITHSCORES', 'LIMIT', 0, BATCH)
reply[1], reply[2], reply[3] = begun, last, #changes == 2 * BATCH and tonumber(changes[#changes]) or last
for i = 1, #changes, 2 do
	local c = load(changes[i])
	if c and kept(c) > now then
		local left = math.min(c.ends - now, c.wait)
		add(changes[i], c.ends, c.wait, c.wait - left, c.every, c.round, c.slots, c.replaced)
	end
end
return reply
