-- ARGV: the charges, n negative for a refund. Returns corrupt.

local writes, last = {}, {}

each(1, function(v)
	local met = drained(last[v.id] or read(v.key, v.field), v.limit)
	local after = charged(met, v.limit, v.n)
	last[v.id] = after
	if after.level ~= met.level then
		writes[#writes + 1] = {key = v.key, field = v.field, bucket = after, limit = v.limit}
	end
end)

write(writes)
return corrupt
