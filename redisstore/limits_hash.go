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
	maxFields = 16 // in a hash; there are five, and errors quote the others
	maxBytes  = 64 // of a field or value in a reply
)

// limitsScript replies with HGETALL, but shortened to what an error message needs, because anybody may
// have written the hash: for too many fields only their number, and for a value that is too long
// only its length.
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

// A LimitsError is one fault in a hash of Limits.
type LimitsError struct {
	Key    string // of the limits
	Field  string // such as per_minute; cut if it is long, and "" for the hash as a whole
	Reason string // what is wrong
}

func (e *LimitsError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("redisstore: the limits of %q: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("redisstore: the limits of %q: %s: %s", e.Key, printable(e.Field), e.Reason)
}

// printable returns text, quoted if it has characters that could break a log line: anybody with
// access to Redis chooses the names of fields.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// windows maps the fields of a hash to their policies.
var windows = map[string]func(n int64) quota.Policy{
	"per_second": quota.PerSecond,
	"per_minute": quota.PerMinute,
	"per_hour":   quota.PerHour,
	"per_day":    quota.PerDay,
}

// parseLimits returns the policies in the reply of limitsScript for key, or none if there is no hash.
// The error joins all faults; the policies are then those of the valid fields.
func parseLimits(key string, reply any) (policies []quota.Policy, err error) {
	if fields, many := reply.(int64); many {
		const reason = "must have no fields but per_second, per_minute, per_hour, per_day and blocked: has %d"
		return nil, &LimitsError{key, "", fmt.Sprintf(reason, fields)}
	}
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, &LimitsError{key, "", "must be a hash"}
	}
	for ; len(list) > 0; list = list[2:] {
		field, _ := list[0].(string)
		value, _ := list[1].(string)
		if field == "blocked" && value == "0" {
			continue
		}
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

// blocks reports whether p blocks its key.
func blocks(p quota.Policy) bool { return p.Quota == quota.Blocked }

// parseLimit returns the policy of a field, or the reason why it is invalid.
func parseLimit(field, value string) (p quota.Policy, reason string) {
	switch {
	case field == "blocked" && value == "1":
		return quota.Policy{Quota: quota.Blocked}, ""
	case field == "blocked":
		return p, fmt.Sprintf("is %.40q: must be 0 or 1", value)
	}
	window := windows[field]
	if window == nil {
		return p, "is unknown: must be per_second, per_minute, per_hour, per_day or blocked"
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
