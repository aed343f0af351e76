package heed

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// RetryAfter reports how long resp asks the client to wait, counted from now,
// and whether it does at all. It reads Retry-After (RFC 9110 section 10.2.3) as
// seconds or as any of the three forms of an HTTP date, measured against the
// response's own Date, and the millisecond fields that vendors send beside it;
// where there is none of these, when the quotas that are used up will not be, from
// RateLimit, X-RateLimit-Reset and their like. What is malformed counts as absent;
// what overflows saturates. A zero now is the present. See [ratelimit.Wait], which it calls.
func RetryAfter(resp *http.Response, now time.Time) (wait time.Duration, ok bool) {
	if resp == nil {
		return 0, false
	}
	return ratelimit.Wait(resp.StatusCode, resp.Header, now)
}
