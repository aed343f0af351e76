package ratelimit

import (
	"net/http"
	"time"
)

// A triple is the names of a family of three fields, and of one that some servers
// send for the last of them.
type triple struct{ limit, remaining, reset, after string }

var (
	draft06          = triple{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Ratelimit-Reset-After"}
	xRateLimit       = triple{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After"}
	xRateLimitHyphen = triple{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "X-Rate-Limit-Reset-After"}
)

// triples are the styles that write a triple.
const triples = Draft06 | XRateLimit | XRateLimitDelta

// triple appends what the triples of style say of l, the tightest limit, but for
// its quota if it has an item. What is left may stand in the text already.
func (x *text) triple(b []byte, style Style, l *Limit) []byte {
	if x.item == nil {
		b = x.quota.integer(b, l.Quota)
	}
	if x.remaining == (piece{}) {
		b = x.remaining.integer(b, l.Remaining)
	}
	if style&(Draft06|XRateLimitDelta) != 0 {
		b = x.deltaReset.integer(b, deltaReset(l))
	}
	if style&XRateLimit != 0 {
		b = x.unixReset.integer(b, unixReset(l))
	}
	return b
}

// set puts the triple into h. It takes three places of room for its values, and
// returns the rest.
func (t *triple) set(h http.Header, room []string, limit, remaining, reset string) []string {
	room[0], room[1], room[2] = limit, remaining, reset
	h[t.limit] = room[0:1:1]
	h[t.remaining] = room[1:2:2]
	h[t.reset] = room[2:3:3]
	return room[3:]
}

// deltaReset returns the seconds until l is whole again.
func deltaReset(l *Limit) int64 { return ceilSeconds(l.Reset) }

// unixReset returns the Unix time at which l is whole again.
func unixReset(l *Limit) int64 {
	wait := max(l.Reset, 0)
	part := wait%time.Second + time.Duration(l.At.Nanosecond()) // apart, since the sum of all might overflow
	return l.At.Unix() + int64(wait/time.Second) + ceilSeconds(part)
}

// ceilSeconds rounds d up to a whole second.
func ceilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
