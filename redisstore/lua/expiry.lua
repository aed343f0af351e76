local grace = 1000 -- ms that a key is kept longer, because clocks are coarse

-- permit raises Redis' own error if a command is not permitted, before anything is written. Redis 6.2
-- has no such check. Checking one key is enough for all: Redis refuses a script unless the user may
-- read and write all its KEYS.
local may = redis.acl_check_cmd
local function permit(...)
	if may and not may(...) then call(...) end
end

-- extend keeps key until last at least, and a little longer, so that most calls need no PEXPIRE.
local function extend(key, last)
	local need = ceil((last - now) / 1000) + grace
	if need < grace then need = grace end
	if call('PTTL', key) < need then
		call('PEXPIRE', key, digits(need + math.max(ceil(need / 16), 1000)))
	end
end
