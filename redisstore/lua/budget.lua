-- One step of a retry budget: it adds what was earned and gives back what was refunded, then pays for a
-- retry.
--
-- KEYS[1] is a hash. A TTL is divided into tenths. For the tenth that starts at T (in ms), field e<T>
-- has the units that were earned in it and not spent, s<T> those that are spent, and field p<T> the
-- number of processes that called in it. Field floor has the units of the floor at the time in field
-- at. Without a hash, the floor is full.
--
-- All numbers are integers below 2^53, which Lua holds exactly. A field with another value, or a
-- larger one than this script writes, counts as absent.
local earned, refunded = tonumber(ARGV[1]), tonumber(ARGV[2])
local owed, price = tonumber(ARGV[3]), tonumber(ARGV[4])
local rate, most = tonumber(ARGV[5]), tonumber(ARGV[6]) -- of the floor: units a millisecond, and its size
local tenth = tonumber(ARGV[7])                         -- in ms
local counted = tonumber(ARGV[8])                       -- the tenth in which the caller was last counted
local MOST = 2 ^ 48                                     -- units earned in one tenth

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local start = now - now % tenth

-- If anything may not be written, nothing is: the first call that is not permitted raises the error.
-- Redis 6.2 has no such check.
for _, call in ipairs({{'DEL', KEYS[1]}, {'HSET', KEYS[1], 'at', '0'}, {'PEXPIRE', KEYS[1], '1'}}) do
	if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end
end

local floor, at = most, now
local units, spent, callers = {[start] = 0}, {}, {[start] = 0} -- by the start of their tenth
local stored = redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
	local field, value = stored[i], string.match(stored[i + 1], '^%d+$') and tonumber(stored[i + 1])
	local kind, from = string.match(field, '^([esp])(%d+)$')
	from = tonumber(from)
	if value and value <= 2 ^ 53 - 1 then
		if field == 'floor' then floor = value end
		if field == 'at' then at = value end
		if from and math.abs(start - from) < 10 * tenth and value <= MOST then
			local of = kind == 'e' and units or kind == 's' and spent or callers
			of[from] = value
		end
	end
end

-- If the clock has stepped back, nothing is earned twice, and the floor stops filling for a TTL at most.
at = math.min(at, now + 10 * tenth)
floor = math.min(most, floor + math.max(0, now - at) * rate)
at = math.max(at, now)

units[start] = units[start] + earned
if counted ~= start then callers[start] = callers[start] + 1 end

local starts = {}
for from in pairs(spent) do units[from] = units[from] or 0 end
for from in pairs(units) do
	spent[from] = spent[from] or 0
	table.insert(starts, from)
end
table.sort(starts)

-- A refund undoes spend, the last first. It is never a new deposit: what is refunded again and again
-- would not expire. No tenth has more than MOST afterwards.
local filled = math.min(refunded, most - floor)
floor = floor + filled
refunded = refunded - filled
for i = #starts, 1, -1 do
	local from = starts[i]
	local part = math.min(refunded, spent[from])
	units[from] = math.min(MOST, units[from] + part)
	spent[from] = spent[from] - part
	refunded = refunded - part
end

local balance = floor
for _, n in pairs(units) do balance = balance + n end

-- spend takes what was earned first, the oldest first, and the floor last.
local function spend(amount)
	amount = math.min(amount, balance)
	balance = balance - amount
	for _, from in ipairs(starts) do
		local part = math.min(amount, units[from])
		units[from] = units[from] - part
		spent[from] = math.min(MOST, spent[from] + part)
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

local fields, processes = {}, 1 -- at least the caller, even if its count was deleted
local function keep(name, value)
	table.insert(fields, name)
	table.insert(fields, string.format('%.0f', value))
end
keep('floor', floor)
keep('at', at)
for _, from in ipairs(starts) do
	if units[from] > 0 then keep(string.format('e%.0f', from), units[from]) end
	if spent[from] > 0 then keep(string.format('s%.0f', from), spent[from]) end
end
for from, n in pairs(callers) do
	keep(string.format('p%.0f', from), n)
	processes = math.max(processes, n)
end

local full = 0 -- ms until the floor is full
if rate > 0 then full = at - now + math.ceil((most - floor) / rate) end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(10 * tenth, full) + 1))
return {granted, balance, start, processes}
