-- Requests in flight. KEYS[1] is a sorted set. A member <n>:<id> is an entry that takes n places; its
-- score is when it expires, in ms since the Unix epoch. The score of the member 'places' is the number
-- of places that all entries take, as a negative number, which no time is.
--
-- ARGV: how long an entry is kept, in ms; then for each command its verb, the entry and a limit:
--   take  add the entry if its places are free within the limit; if it exists, as keep
--   keep  if the entry exists, extend it
--   drop  remove the entry
-- The reply is the time in µs, how many places are in use, whether the set was invalid, and for each
-- command whether the entry exists now, or for drop, existed before.

-- Tests replace this line by a clock of their own.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local key, ttl = KEYS[1], tonumber(ARGV[1])
local farthest = now + 86400000 -- no entry expires later

-- write is redis.call. Before the first write it checks whether all writes are permitted, and raises
-- the error if not, so that a script writes all or nothing. Redis 6.2 has no such check.
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

local function places(entry) return tonumber(string.match(entry, '^(%d+):') or 0) end

local before = -tonumber(redis.call('ZSCORE', key, 'places') or 0)
local used, corrupt = before, 0

local function remove(entry)
	write('ZREM', key, entry)
	used = used - places(entry)
end

for _, entry in ipairs(redis.call('ZRANGEBYSCORE', key, '0', now)) do remove(entry) end
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. farthest, '+inf')) do
	corrupt = 1
	remove(entry)
end

-- An invalid number of places is counted again. Every entry has at least one place.
local entries = redis.call('ZCOUNT', key, '0', '+inf')
if used % 1 ~= 0 or used < entries or used > 0 and entries == 0 or used >= 2 ^ 53 then
	corrupt, used = 1, 0
	for _, entry in ipairs(redis.call('ZRANGEBYSCORE', key, '0', '+inf')) do used = used + places(entry) end
end

local function set(entry) write('ZADD', key, now + ttl, entry) end

-- extend keeps the key a second longer than an entry that is set now, because clocks are coarse.
local function extend()
	write('PEXPIRE', key, math.max(redis.call('PTTL', key), ttl + 1000))
end

local found = {}
for i = 2, #ARGV, 3 do
	local verb, entry, limit = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
	local there = redis.call('ZSCORE', key, entry)
	if there and verb == 'drop' then
		remove(entry)
	elseif there then
		extend() -- first, because a Redis without memory refuses ZADD unless the script has written before
		set(entry)
	elseif verb == 'take' and places(entry) <= limit - used then
		set(entry)
		extend()
		used, there = used + places(entry), true
	end
	table.insert(found, there and 1 or 0)
end

if used ~= before then
	if used > 0 then write('ZADD', key, -used, 'places') else write('DEL', key) end
end
return {clock[1] * 1000000 + clock[2], used, corrupt, unpack(found)}
