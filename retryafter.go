package heed

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// RetryAfter returns how long resp asks the client to wait from now on, and whether it asks at all:
//
//	if wait, ok := heed.RetryAfter(resp, time.Now()); ok {
//		time.Sleep(wait)
//	}
//
// It reads Retry-After (RFC 9110 section 10.2.3) as seconds, or as any of the three forms of an
// HTTP date, compared with the response's own Date; and the fields in which vendors send
// milliseconds. Without any of these it returns the time until the exhausted quotas in RateLimit,
// X-RateLimit-Reset and similar fields are available again. Malformed values are ignored, and
// values that overflow are capped. A zero now means the present. It calls [ratelimit.Wait].
func RetryAfter(resp *http.Response, now time.Time) (wait time.Duration, ok bool) {
	if resp == nil {
		return 0, false
	}
	return ratelimit.Wait(resp.StatusCode, resp.Header, now)
}
