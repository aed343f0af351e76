package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/heedhttp/heed/quota"
)

const (
	maxFields = 16 // of a hash of Limits: it has four, and the others go into an error
	maxBytes  = 64 // of a field, or a value
)

// limitsScript replies with what HGETALL does, but no more than an error has to say of what
// somebody else may have put there: how many fields there are if there are too many, and
// how long a value is that is too long.
var limitsScript = newScript(fmt.Sprintf(`
local key, reply = KEYS[1], {}
local fields = redis.call('HLEN', key)
if fields > %d then return fields end
for _, field in ipairs(redis.call('HKEYS', key)) do
	local size = redis.call('HSTRLEN', key, field)
	reply[#reply + 1] = string.sub(field, 1, %[2]d)
	reply[#reply + 1] = size > %[2]d and size .. ' bytes long' or redis.call('HGET', key, field)
end
return reply`, maxFields, maxBytes))

// A LimitsError is one thing that is wrong with a hash of Limits.
type LimitsError struct {
	Key    string // as Limits was asked for it
	Field  string // such as per_minute, or how a longer one begins; "" is the hash as a whole
	Reason string // what is wrong with it
}

func (e *LimitsError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("redisstore: the limits of %q: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("redisstore: the limits of %q: %s: %s", e.Key, printable(e.Field), e.Reason)
}

// printable returns text, in quotes if it has characters that could break a log's line:
// anybody who may write to Redis chooses the names of fields.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// windows has the policy of each field of a hash of Limits.
var windows = map[string]func(n int64) quota.Policy{
	"per_second": quota.PerSecond,
	"per_minute": quota.PerMinute,
	"per_hour":   quota.PerHour,
	"per_day":    quota.PerDay,
}

// parseLimits returns the policies in key's hash from the reply of limitsScript; none if
// there is no hash. The error joins all faults.
func parseLimits(key string, reply any) (policies []quota.Policy, err error) {
	if fields, many := reply.(int64); many {
		return nil, &LimitsError{key, "", fmt.Sprintf("have %d fields: there are %d", fields, len(windows))}
	}
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, &LimitsError{key, "", "are no hash"}
	}
	for ; len(list) > 0; list = list[2:] {
		field, _ := list[0].(string)
		value, _ := list[1].(string)
		policy, reason := parseLimit(field, value)
		if reason != "" {
			err = errors.Join(err, &LimitsError{key, field, reason})
			continue
		}
		policies = append(policies, policy)
	}
	slices.SortFunc(policies, func(a, b quota.Policy) int { return cmp.Compare(a.Window, b.Window) })
	return policies, err
}

// parseLimit returns the policy of a field, or what is wrong with it.
func parseLimit(field, value string) (p quota.Policy, reason string) {
	window := windows[field]
	if window == nil {
		return p, "there is no such field: it must be per_second, per_minute, per_hour or per_day"
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return p, fmt.Sprintf("is %.40q: must be a whole number", value)
	}
	if n < 0 {
		return p, fmt.Sprintf("is %d: must not be negative", n)
	}
	p = window(n)
	if n == 0 {
		return p, ""
	}
	if _, err := p.Compile(); err != nil {
		return p, err.Error()
	}
	return p, ""
}
