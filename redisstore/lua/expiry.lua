local grace = 1000 -- ms that a key lives longer, for the sake of coarse clocks

-- permit raises an error if a command is not permitted, which Redis 7 and later can be asked
-- before anything is written: one that is not says so itself. What one key permits all do:
-- Redis refuses a script unless all its KEYS may be read and written.
local may = redis.acl_check_cmd
local function permit(...)
	if may and not may(...) then call(...) end
end

-- extend has key live until last, and then some, so that it need not be told each time.
local function extend(key, last)
	local need = ceil((last - now) / 1000) + grace
	if need < grace then need = grace end
	if call('PTTL', key) < need then
		call('PEXPIRE', key, digits(need + math.max(ceil(need / 16), 1000)))
	end
end
