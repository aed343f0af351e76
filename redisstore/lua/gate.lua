-- Places in flight. KEYS[1] is a sorted set. A member <n>:<id> is a hold of n
-- places, and its score is when it expires, in ms since the Unix epoch. The score
-- of the member 'places' is how many all holds have together, negative so that it
-- passes for no time.
--
-- ARGV: how long a hold lives, in ms; then, for each hold that is asked about,
-- what to do, its member, and a limit:
--   take  if it is not there, add it if its places are free within the limit
--   keep  if it is there, put off its expiry; take does that too
--   drop  remove it
-- Returns the time in µs, how many places are in use, whether the set was as it
-- cannot be, and for each hold whether it is there, or, with drop, was.

-- This line is replaced in tests, which have a clock of their own.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local key, ttl = KEYS[1], tonumber(ARGV[1])
local ahead = 86400000 -- an expiry further in the future is not believed

local function integer(n) return string.format('%.0f', n) end

-- write is redis.call, but before the first one raises an error if any may not be
-- made, which Redis 7 and later can be asked: nothing is written by halves.
local permitted = not redis.acl_check_cmd
local function write(...)
	if not permitted then
		for _, call in ipairs({{'ZADD', key, '1', '1:'}, {'ZREM', key, '1:'}, {'PEXPIRE', key, '1'}, {'DEL', key}}) do
			if not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
		end
		permitted = true
	end
	return redis.call(...)
end

-- places is how many a hold has.
local function places(hold) return tonumber(string.match(hold, '^(%d+):') or 0) end

local said = redis.call('ZSCORE', key, 'places')
local used, corrupt = -tonumber(said or 0), 0

local function remove(hold)
	write('ZREM', key, hold)
	used = used - places(hold)
end

-- set has a hold expire ttl from now.
local function set(hold) write('ZADD', key, integer(now + ttl), hold) end

-- outlive has the key live a second longer than a hold that is set now, for the
-- sake of coarse clocks.
local function outlive()
	write('PEXPIRE', key, integer(math.max(redis.call('PTTL', key), ttl + 1000)))
end

for _, hold in ipairs(redis.call('ZRANGEBYSCORE', key, '0', integer(now))) do remove(hold) end
for _, hold in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. integer(now + ahead), '+inf')) do
	corrupt = 1
	remove(hold)
end

-- What cannot be the number of places is counted anew: every hold has one at least.
local number = redis.call('ZCOUNT', key, '0', '+inf')
if used % 1 ~= 0 or used < number or used > 0 and number == 0 or used >= 2 ^ 53 then
	corrupt, used = 1, 0
	for _, hold in ipairs(redis.call('ZRANGEBYSCORE', key, '0', '+inf')) do used = used + places(hold) end
end

local answers = {}
for i = 2, #ARGV, 3 do
	local verb, hold, limit = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
	local there = redis.call('ZSCORE', key, hold)
	if there and verb == 'drop' then
		remove(hold)
	elseif there then
		outlive() -- first: out of memory, Redis refuses a ZADD unless something was written before it
		set(hold)
	elseif verb == 'take' and places(hold) <= limit - used then
		set(hold)
		outlive()
		used, there = used + places(hold), true
	end
	table.insert(answers, there and 1 or 0)
end

if used ~= -tonumber(said or 0) then
	if used > 0 then write('ZADD', key, integer(-used), 'places') else write('DEL', key) end
end
return {clock[1] * 1000000 + clock[2], used, corrupt, unpack(answers)}
