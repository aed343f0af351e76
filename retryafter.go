package heed

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// vendors is the table for RetryAfter, which has no Transport.
var vendors scope.Table

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
//
// Of a vendor that is built in, known by the host in resp.Request, it reads what [ratelimit.Profile.Read]
// reads: also the beginning of the body, which the caller can still read. Of a quota that is used up for so
// long that nothing is sent again, it returns the time until it comes back, if the vendor says so.
func RetryAfter(resp *http.Response, now time.Time) (wait time.Duration, ok bool) {
	if resp == nil {
		return 0, false
	}
	if req := resp.Request; req != nil && req.URL != nil {
		p := vendors.Profile(hosts.Name(req.URL.Scheme, req.URL.Host), nil)
		if p != nil && (resp.StatusCode >= 400 || p.Suspects(resp.StatusCode, resp.Header)) {
			a := p.Read(resp, now)
			return a.Wait, a.Known
		}
	}
	return ratelimit.Wait(resp.StatusCode, resp.Header, now)
}
