package ratelimit

import "time"

// A triple is the names of a family of three fields.
type triple struct{ limit, remaining, reset string }

var (
	xRateLimit = triple{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	draft06    = triple{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}
)

// triple appends the three fields of l called names to b.
func (f *fields) triple(b []byte, names *triple, l *Limit, reset int64) []byte {
	b = appendInteger(b, l.Quota)
	f.rendered(names.limit, b, false)
	b = appendInteger(b, l.Remaining)
	f.rendered(names.remaining, b, false)
	b = appendInteger(b, reset)
	f.rendered(names.reset, b, false)
	return b
}

// deltaReset returns the seconds until l is whole again.
func deltaReset(l *Limit) int64 { return ceilSeconds(l.Reset) }

// unixReset returns the Unix time at which l is whole again.
func unixReset(l *Limit) int64 {
	whole := l.At.Add(max(l.Reset, 0))
	if whole.Nanosecond() > 0 {
		return whole.Unix() + 1
	}
	return whole.Unix()
}

// ceilSeconds rounds d up to a whole second.
func ceilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
