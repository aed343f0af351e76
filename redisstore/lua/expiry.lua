local grace = 1000 -- ms that a key lives longer, for the sake of coarse clocks

-- permit raises an error if a command is not permitted, which Redis 7 and later can
-- be asked before anything is written: one that is not says so itself. To set the TTL
-- first would not do, since Redis sees whether memory is short only before the first
-- command that writes, and only if that is one which may need some.
local may = redis.acl_check_cmd
local function permit(...)
	if may and not may(...) then call(...) end
end

-- extend has key, which lives for so many ms, live until last, and then some, so that
-- it need not be told each time.
local function extend(key, left, last)
	local need = ceil((last - now) / 1000) + grace
	if need < grace then need = grace end
	if left < need then call('PEXPIRE', key, string.format('%.0f', need + math.max(ceil(need / 16), 1000))) end
end
