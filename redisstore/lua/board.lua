-- One sync of one process: it sends operations, and gets what has changed.
--
-- KEYS[1] is a hash. Its field "first" is when changes were first numbered, and "last" is the number
-- of the latest change. Each cool-down has a field k<key> of six numbers:
--   ends      when it ends
--   wait      how long before its end it was posted, or a probe of it was granted
--   every     the interval at which the server admits requests, 0 if unknown
--   round     the change that started it
--   slots     how many slots in the interval were given since
--   replaced  the change that replaced it last, 0 if none did
-- KEYS[2] is a sorted set: the keys by the number of their latest change.
--
-- All times are µs since the Unix epoch by Redis' clock. Changes are numbered by it too, so that the
-- numbers increase even if Redis has lost some. All numbers are integers below 2^53, which Lua holds
-- exactly. A field with other numbers, or larger ones than this script writes, counts as absent.
local first, since = tonumber(ARGV[1]), tonumber(ARGV[2]) -- the caller knows all changes up to since
-- The other arguments are operations: a name, a key, and these numbers.
local ARGUMENTS = {'left', 'every', 'ago', 'round', 'replaced'}

local DAY = 86400000000
local KEEP = 10000000 -- how long a cool-down is kept after its end, for processes that sync late
local MOST = 4096     -- cool-downs, and slots of one cool-down
local BATCH = 256     -- changes in one reply

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- number returns the integer in text if it is below 2^53, and otherwise nil.
local function number(text)
	local n = text and string.match(text, '^%d+$') and tonumber(text)
	if n and n < 2 ^ 53 then return n end
end

-- Neither key is ever empty. If one is, it was evicted, and the other is out of date.
local start, last = number(redis.call('HGET', KEYS[1], 'first')), number(redis.call('HGET', KEYS[1], 'last'))
if redis.call('ZCARD', KEYS[2]) == 0 or not start or not last or math.max(start, last) > now + DAY then
	start, last = 0, 0
end

-- load returns key's cool-down, even if it is over, or nil.
local function load(key)
	local c, text = {}, start > 0 and redis.call('HGET', KEYS[1], 'k' .. key) or ''
	c.ends, c.wait, c.every, c.round, c.slots, c.replaced = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
	for name, digits in pairs(c) do
		c[name] = number(digits)
		if not c[name] then return end
	end
	if c.ends and c.ends <= now + 2 * DAY and c.wait <= DAY and c.every <= DAY and c.slots <= MOST
		and c.replaced <= now + DAY then return c end
end

local function fresh(replaced) return {ends = now, wait = 0, every = 0, slots = 0, replaced = replaced} end

-- current returns key's cool-down, or a new one if it is over.
local function current(key)
	local c = load(key)
	if c and c.ends > now then return c end
	return fresh(c and c.replaced or 0)
end

-- lastRelease returns when the last slot releases its first request.
local function lastRelease(c) return c.ends + c.slots * c.every end

-- kept returns until when c is sent to processes. One that was replaced is sent until no process can
-- still use what was there before.
local function kept(c)
	return math.max(lastRelease(c) + KEEP, c.replaced > 0 and c.replaced + DAY or 0)
end

local expiry = 0 -- when the last cool-down written here may be forgotten, 0 if nothing is written

-- prepare fails unless everything here may be written: it makes the first call that is not permitted,
-- which raises the error. Redis 6.2 has no such check.
local function prepare()
	for _, call in ipairs({{'HSET', KEYS[1], 'last', '0'}, {'HDEL', KEYS[1], 'k'}, {'ZADD', KEYS[2], '0', 'k'},
		{'ZREM', KEYS[2], 'k'}, {'PEXPIRE', KEYS[1], '1'}, {'PEXPIRE', KEYS[2], '1'}, {'DEL', KEYS[1], KEYS[2]}}) do
		if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
	end
	if start == 0 then
		redis.call('DEL', KEYS[1], KEYS[2])
		start = now
	end
end

-- If Redis has an older copy than the caller, it starts anew with that copy, so that all notice.
if start > 0 and start == first and last < since then
	prepare()
	start, expiry = math.max(start + 1, now), now + 1
end

-- save stores c with the number of a new change. It also sets round and replaced if they are missing.
local function save(key, c)
	if expiry == 0 then prepare() end
	last = math.max(last, now, c.round or 0, c.replaced or 0) + 1
	c.round, c.replaced = c.round or last, c.replaced or last
	redis.call('HSET', KEYS[1], 'k' .. key, string.format('%.0f %.0f %.0f %.0f %.0f %.0f',
		c.ends, c.wait, c.every, c.round, c.slots, c.replaced))
	redis.call('ZADD', KEYS[2], string.format('%.0f', last), key)
	expiry = math.max(expiry, kept(c))
end

-- lengthen never shortens a wait or an interval: a post for one policy says nothing about others.
local function lengthen(key, c, op, changed)
	if now + op.left > c.ends then
		c.ends, c.wait, changed = now + op.left, math.min(op.left + op.ago, DAY), true
	end
	if op.every > c.every then c.every, changed = op.every, true end
	if changed then save(key, c) end
end

-- Operations return their answers; no answer is 0.
local operations = {}

-- post makes key wait.
function operations.post(key, op) lengthen(key, current(key), op, false) end

-- replace makes key wait for left instead of what is stored. If op.replaced is not negative, it does
-- nothing if there was a later replacement than that one.
function operations.replace(key, op)
	if op.replaced < 0 or current(key).replaced <= op.replaced then
		save(key, {ends = now + op.left, wait = op.left, every = op.every, slots = 0})
	end
end

-- restore brings back what Redis may have lost. The cool-down with the later replacement counts, or
-- the one that started after it.
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

-- claim gives a slot whose first request is not released yet, or returns -1.
function operations.claim(key, op)
	local c = load(key)
	if not c or c.round ~= op.round or c.slots >= MOST or lastRelease(c) <= now then return -1 end
	c.slots = c.slots + 1
	save(key, c)
	return c.slots - 1
end

-- probe returns 1 if the caller may send a request in spite of the cool-down: once in each op.every,
-- counted from the post, as long as more than that is left.
function operations.probe(key, op)
	local c = load(key)
	local left = c and c.ends - now
	if not c or left <= op.every then return 0 end
	local stepped = left > c.wait -- the clock has stepped back: the wait starts anew
	if stepped then c.ends = now + c.wait end
	if not stepped and c.wait - left < op.every then return 0 end
	c.wait = math.min(c.wait, left)
	save(key, c)
	return stepped and 0 or 1
end

-- forget removes cool-downs that are over, and the oldest ones if there are too many.
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

local reply = {0, 0, 0, ''} -- start, last, upto, and the error of PUBLISH; then answers and changes
local function add(...)
	for _, v in ipairs({...}) do reply[#reply + 1] = v end
end

for at = 3, #ARGV, 2 + #ARGUMENTS do
	local op = {}
	for i, name in ipairs(ARGUMENTS) do op[name] = tonumber(ARGV[at + 1 + i]) end
	add(operations[ARGV[at]](ARGV[at + 1], op) or 0)
end

if expiry > 0 then
	redis.call('HSET', KEYS[1], 'first', string.format('%.0f', start), 'last', string.format('%.0f', last))
	forget()
	local ttl = math.min(math.max(redis.call('PTTL', KEYS[1]), math.ceil((expiry - now) / 1000)), 2 * DAY / 1000)
	for _, key in ipairs({KEYS[1], KEYS[2]}) do redis.call('PEXPIRE', key, string.format('%.0f', ttl)) end
	local published = redis.pcall('PUBLISH', KEYS[1], '')
	if type(published) == 'table' then reply[4] = published.err end
end

if start ~= first then since = 0 end
local changes = redis.call('ZRANGEBYSCORE', KEYS[2], string.format('(%.0f', since), string.format('%.0f', last),
	'WITHSCORES', 'LIMIT', 0, BATCH)
reply[1], reply[2], reply[3] = start, last, #changes == 2 * BATCH and tonumber(changes[#changes]) or last
for i = 1, #changes, 2 do
	local c = load(changes[i])
	if c and kept(c) > now then
		local left = math.min(c.ends - now, c.wait)
		add(changes[i], c.ends, c.wait, c.wait - left, c.every, c.round, c.slots, c.replaced)
	end
end
return reply
