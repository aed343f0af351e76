package ratelimit

import (
	"net/http"
	"slices"
	"time"
)

// Parse returns every quota that a response announces, the tightest first:
//
//	for _, limit := range ratelimit.Parse(resp.Header, time.Time{}) {
//		fmt.Println(limit.Name, limit.Remaining, "of", limit.Quota, "left")
//	}
//
// Quotas that are used up come first, the longest Wait first. Then come the others by the
// part that is left, and last those whose state is unknown. Without any, Parse returns
// nil and does not allocate.
//
// now is when the response was received, or the present if zero. It becomes At of each
// Limit. Dates and Unix times are measured against the response's Date, or against now
// without one. The status does not matter: successful responses announce quotas, too. A
// response with an Age above 0 comes from a cache, and has none.
//
// Parse reads these dialects:
//
//   - RateLimit and RateLimit-Policy of draft-08 to draft-11: r is Remaining and t is
//     Next. The next draft calls them a and w, and adds c, which is Cost. If both are
//     present the stricter counts.
//   - the same two fields in the syntax of draft-07;
//   - RateLimit-Limit, -Remaining and -Reset of draft-03 to draft-06, with
//     RateLimit-Policy or, in draft-03, policies in RateLimit-Limit;
//   - X-RateLimit-Limit, -Remaining and -Reset, and X-Rate-Limit-…;
//   - the same with a word that tells several quotas apart: X-RateLimit-Reset-Tokens,
//     X-RateLimit-Complexity-Reset, Anthropic-RateLimit-Requests-Reset. The word becomes
//     Name, and Unit unless it means requests.
//
// A reset may be seconds, Unix time, a duration or a date. The magnitude of a Unix time
// tells whether it is in s, ms, µs or ns. RateLimit-Reset-After and
// X-RateLimit-Reset-After, in seconds, take precedence. A policy without a state becomes
// a Limit with Remaining, Next and Reset of -1. Algorithm comes from heed-algorithm in
// RateLimit-Policy. A quota that appears in two dialects, as Set writes it, becomes one
// Limit.
//
// Parse reads back what Set writes, rounded to seconds.
func Parse(h http.Header, now time.Time) []Limit {
	r := reader{header: h, clock: clock{local: now}}
	var space [2]Limit // more are rare, and clearing space takes time
	return r.finish(r.quotas(space[:0], true))
}

// finish returns the limits completed and in order.
func (r *reader) finish(read []Limit) []Limit {
	if len(read) == 0 {
		return nil
	}
	limits := make([]Limit, len(read)) // slices.Clone would let space escape
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
