-- whole is when cell, which was charged, owes nothing.
local function whole(cell)
	local limit, t, level = cell.limit, cell.time, cell.level
	if limit.kind < 2 then return t + ceil(level / limit.rate) * limit.tick end
	if cell.last or cell.prev > 0 and level == 0 then return t + limit.window end
	if level == 0 then return t end
	if limit.kind == 3 then return t + 2 * limit.window end
	local _, finish = window(limit, t)
	return finish
end

local asked
for i = 1, count do
	local cell = cells[i]
	if (cell.limit or cell.before) and cell.key ~= asked then
		asked = cell.key
		permit('HSET', asked, 'field', 'value')
		permit('PEXPIRE', asked, '1')
		cell.left = call('PTTL', asked)
	end
	if cell.before then permit('HDEL', asked, 'field') end
end
for i = 1, #ids do
	local id = ids[i]
	if id.keep then
		permit('ZREMRANGEBYSCORE', id.set, '0', '1')
		permit('ZADD', id.set, '1', 'member')
		permit('PEXPIRE', id.set, '1')
		id.left = call('PTTL', id.set)
	elseif id.drop then
		permit('ZREM', id.set, 'member')
	end
end

local i = 1
while i <= count do
	local key, left, last, name, value, others, n = cells[i].key, nil, now, nil, nil, nil, 0
	repeat
		local cell = cells[i]
		left = left or cell.left
		if cell.limit then
			local ends = whole(cell)
			if ends > last then last = ends end
			if value then
				others = others or {}
				others[n + 1], others[n + 2], n = cell.name, format(cell), n + 2
			else
				name, value = cell.name, format(cell)
			end
		elseif cell.before == '' then
			call('HDEL', key, cell.name)
		elseif cell.before then
			call('HSET', key, cell.name, cell.before)
		end
		i = i + 1
	until i > count or cells[i].key ~= key
	if others then
		call('HSET', key, name, value, unpack(others))
	elseif value then
		call('HSET', key, name, value)
	end
	if value then extend(key, left, last) end
end
for i = 1, #ids do
	local id = ids[i]
	if id.keep then
		if call('ZREMRANGEBYSCORE', id.set, '-inf', string.format('%.0f', now)) > 0 then
			id.left = call('PTTL', id.set) -- which is gone, and so is its TTL, if nothing is left in it
		end
		call('ZADD', id.set, string.format('%.0f', id.keep), id.member)
		extend(id.set, id.left, id.keep)
	elseif id.drop then
		call('ZREM', id.set, id.member)
	end
end

for i = 1, count do
	local value = cells[i].value or ''
	if cells[i].value == '' or #value > 65535 then value = 'x' end -- nobody has written that
	local size = #value
	local length = size < 255 and char(size) or char(255, floor(size / 256), size % 256)
	reply[said + 1], reply[said + 2], said = length, value, said + 2
end
return table.concat(reply)
