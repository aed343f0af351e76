-- The charges of the calls, one call after the other. Those of one call are made
-- together, or none of them is:
--
--   1        the sum of: 1 if the call has another charge after this one, 2 if it is
--            a dry run, 4 if n has 7 bytes more, 8 if it has an ID, 16 if n is
--            negative, 32 if it is settled, 64 if it is reserved, or settled and
--            revokes, 128 if it is told when it was made
--   2, 2, 1  the cell, the limit, and n
--   7        n, of 4
--   2, 7     the ID, of 8, and for how long it is remembered: if 0, until the Calendar's
--            window ends
--   7        how long it may wait, of 64 without 32
--   7        when it was made, of 128
--   2 and that many bytes, twice, of 64 with 32: the value that is expected, if any is,
--            and that which is to be restored instead

-- The reply is seven bytes of now; a byte for each ID, 1 if it was charged before; a
-- byte for each call, 1 if it was allowed; and for each cell, in a byte or in three
-- that begin with 255, how many bytes its value had, and these.
local reply, said = {seven(now), '', '', ''}, 1
for i = 1, #ids do
	said = said + 1
	reply[said] = ids[i].known and '\1' or '\0'
end

local undo, saved = {}, 0

-- save has restore bring back what cell is, and whether id is to be kept.
local function save(cell, id)
	saved = saved + 1
	undo[saved] = {cell, cell.time, cell.level, cell.unit, cell.prev, cell.limit, cell.log, cell.last, id, id and id.keep}
end

-- restore brings back all that was saved.
local function restore()
	for i = saved, 1, -1 do
		local was = undo[i]
		local cell, id = was[1], was[9]
		cell.time, cell.level, cell.unit, cell.prev, cell.limit, cell.log, cell.last = unpack(was, 2, 8)
		if id then id.keep = was[10] end
	end
end

-- text returns so many bytes of the plan as it says next.
local function text()
	local from, size = place + 2, number(plan, place, place + 1)
	place = from + size
	return sub(plan, from, place - 1)
end

-- revoke gives back what was taken from cell, and forgets that id was charged. If
-- nothing else has changed cell since, it is as if it had never been, of all charges
-- of this call.
local function revoke(cell, limit, n, id, at, expected, before)
	if id then id.known, id.keep, id.drop = false, false, true end
	if expected ~= '' and cell.value == expected and not cell.limit and not cell.before then
		cell.before, cell.revoked = before, said
		cell.time, cell.level, cell.unit, cell.prev, cell.log, cell.last = parse(before)
	elseif cell.revoked ~= said then
		limit.settle(cell, limit, n, at)
	end
end

-- special makes a charge that is more than a plain one, if all before it were made,
-- and reports whether that stands.
local function special(flags, cell, limit, n, allowed)
	local settled, marked, id, lasts, within, at = flags % 64 >= 32, flags % 128 >= 64
	if flags % 8 >= 4 then
		n, place = number(plan, place, place + 6), place + 7
	end
	if flags % 32 >= 16 then n = -n end
	if flags % 16 >= 8 then
		id, lasts, place = ids[number(plan, place, place + 1)], number(plan, place + 2, place + 8), place + 9
	end
	if marked and not settled then
		within, place = number(plan, place, place + 6), place + 7
	end
	if flags >= 128 then
		at, place = number(plan, place, place + 6), place + 7
	end
	if marked and settled then
		revoke(cell, limit, n, id, at, text(), text())
		return true
	end
	if not allowed then return false end
	if id and (id.known or id.keep) then return true end
	if settled then
		limit.settle(cell, limit, n, at)
	else
		if flags % 2 == 1 then save(cell, id) end
		if not limit.charge(cell, limit, n, within) then return flags % 4 >= 2 end
	end
	if id then id.keep = lasts > 0 and now + lasts or select(2, window(limit, now)) end
	return true
end

while place <= #plan do
	local allowed, more = true, false
	saved = 0
	repeat
		local flags, c1, c2, l1, l2, n = byte(plan, place, place + 5)
		local cell, limit = cells[c1 * 256 + c2], limits[l1 * 256 + l2]
		more, place = flags % 2 == 1, place + 6
		if flags > 1 then
			allowed = special(flags, cell, limit, n, allowed)
		elseif allowed then
			if more then save(cell) end
			allowed = limit.charge(cell, limit, n)
		end
	until not more
	if not allowed then restore() end
	said = said + 1
	reply[said] = allowed and '\1' or '\0'
end
