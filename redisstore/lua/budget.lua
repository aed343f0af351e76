-- One step of a retry budget: what was earned is added, then a retry is paid for.
--
-- KEYS[1] is a hash. The tenth of a TTL that began at T (in milliseconds) has a
-- field e<T>, the units earned in it and not spent, and a field p<T>, how many
-- processes called in it. The field floor holds the units of the floor at
-- the moment in the field at. Where there is no hash, the floor is full.
--
-- All numbers are integers; those that count are below 2^53, and so exact. What
-- is no such number in the hash, or larger than what is written here, is absent.
local earned, refunded = tonumber(ARGV[1]), tonumber(ARGV[2])
local owed, price = tonumber(ARGV[3]), tonumber(ARGV[4])
local rate, most = tonumber(ARGV[5]), tonumber(ARGV[6]) -- of the floor: units a millisecond, units at most
local tenth = tonumber(ARGV[7])                         -- in milliseconds
local counted = tonumber(ARGV[8])                       -- the tenth in which the caller was last counted
local MOST = 2 ^ 48                                     -- units earned in one tenth

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local begin = now - now % tenth

-- Nothing is written unless all may be: Redis 7 and later can be asked, and a call
-- that is not permitted raises the error that says so.
for _, call in ipairs({{'DEL', KEYS[1]}, {'HSET', KEYS[1], 'at', '0'}, {'PEXPIRE', KEYS[1], '1'}}) do
	if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
end

local floor, at = most, now
local units, callers = {[begin] = 0}, {[begin] = 0} -- by the beginning of their tenth
local stored = redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
	local field, value = stored[i], string.match(stored[i + 1], '^%d+$') and tonumber(stored[i + 1])
	local kind, from = string.match(field, '^([ep])(%d+)$')
	from = tonumber(from)
	if value and value <= 2 ^ 53 - 1 then
		if field == 'floor' then floor = value end
		if field == 'at' then at = value end
		if from and math.abs(begin - from) < 10 * tenth and value <= MOST then
			if kind == 'e' then units[from] = value else callers[from] = value end
		end
	end
end

-- A clock that stepped back earns nothing twice, and stands still for a TTL at most.
at = math.min(at, now + 10 * tenth)
floor = math.min(most, floor + math.max(0, now - at) * rate)
at = math.max(at, now)

local filled = math.min(refunded, most - floor)
floor = floor + filled
units[begin] = math.min(MOST, units[begin] + earned + refunded - filled)
if counted ~= begin then callers[begin] = callers[begin] + 1 end

local balance, begins = floor, {}
for from, n in pairs(units) do
	balance = balance + n
	table.insert(begins, from)
end
table.sort(begins)

-- What was earned first is spent first, and the floor last.
local function spend(amount)
	amount = math.min(amount, balance)
	balance = balance - amount
	for _, from in ipairs(begins) do
		local part = math.min(amount, units[from])
		units[from] = units[from] - part
		amount = amount - part
	end
	floor = floor - amount
end

spend(owed)
local granted = 0
if price > 0 and balance >= price then
	spend(price)
	granted = 1
end

local fields, processes = {}, 1 -- the caller, even if its count was flushed
local function keep(name, value)
	table.insert(fields, name)
	table.insert(fields, string.format('%.0f', value))
end
keep('floor', floor)
keep('at', at)
for from, n in pairs(units) do
	if n > 0 then keep(string.format('e%.0f', from), n) end
end
for from, n in pairs(callers) do
	keep(string.format('p%.0f', from), n)
	processes = math.max(processes, n)
end

local full = 0 -- how long until the floor is
if rate > 0 then full = at - now + math.ceil((most - floor) / rate) end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(10 * tenth, full) + 1))
return {granted, balance, begin, processes}
