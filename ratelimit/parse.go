package ratelimit

import (
	"net/http"
	"slices"
	"time"
)

// Parse returns every quota that the fields of a response tell of, the tightest
// first: what is used up, the longest Wait first; then by the part of the quota that
// is left; last those of whose state nothing is known. It returns nil if they tell of
// none, and then does not allocate.
//
// now is the moment the response was received; if zero, the present. It is the At of
// what is returned, and what moments are measured against if the response has no
// Date. The status of the response does not matter: successes tell of quotas, too.
// What comes out of a cache, and therefore has an Age, tells of none.
//
// The dialects are
//
//   - RateLimit and RateLimit-Policy of draft-08 to draft-11, where r is Remaining and t
//     is Next, and of the draft after it, where they are a and w, and c is Cost; where
//     both are sent, the stricter counts;
//   - the same of draft-07;
//   - RateLimit-Limit, -Remaining and -Reset of draft-03 to draft-06, with
//     RateLimit-Policy or the policies that draft-03 has in RateLimit-Limit;
//   - X-RateLimit-Limit, -Remaining and -Reset, and X-Rate-Limit-…;
//   - the same with a word that tells several quotas apart, as X-RateLimit-Reset-Tokens,
//     X-RateLimit-Complexity-Reset and Anthropic-RateLimit-Requests-Reset. The word is the
//     Name, and the Unit unless requests are what is counted.
//
// A Reset may be seconds, Unix time (in s, ms, µs or ns, told by its magnitude), a
// duration or a date; RateLimit-Reset-After and X-RateLimit-Reset-After are seconds,
// and preferred. A policy of which no state is told is a Limit with Remaining, Next and
// Reset -1. Its Algorithm is what RateLimit-Policy says in heed-algorithm. Where two
// dialects tell of one quota, as Set does, they become one Limit.
//
// What Set wrote, Parse reads, but for what is rounded to a second.
func Parse(h http.Header, now time.Time) []Limit {
	r := reader{header: h, clock: clock{local: now}}
	var space [2]Limit // more are seldom told of, and it takes time to clear
	return r.finish(r.quotas(space[:0], true))
}

// finish returns what was read, completed and in order.
func (r *reader) finish(read []Limit) []Limit {
	if len(read) == 0 {
		return nil
	}
	limits := make([]Limit, len(read)) // not a clone, with which space would escape
	copy(limits, read)
	for i := range limits {
		limits[i].At = r.clock.now()
		limits[i].whole()
	}
	if len(limits) > 1 {
		slices.SortFunc(limits, tightness)
	}
	return limits
}
