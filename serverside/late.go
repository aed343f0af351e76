package serverside

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// Repeated is for Rule.If. It reports whether r is a retry, according to a header field that
// heed's clients send with RetryPolicy.TellServer. A rule with a small quota for retries
// refuses them before first attempts:
//
//	serverside.Rule{Name: "retries", If: serverside.Repeated, Policies: []quota.Policy{quota.PerMinute(6)}}
//
// A client that hides its retries is still limited by the other rules.
func Repeated(r *http.Request) bool { return ratelimit.ParseCall(r.Header).Attempt > 1 }

// InTime returns a handler that refuses requests that cannot be answered before their client
// gives up. It answers these at once with 503 (RFC 9110, section 15.6.4) and X-Should-Retry:
// false, and passes the others to h. If h is nil, http.DefaultServeMux.
//
// needs returns the least time that an answer takes. Clients send the time they have left in
// ratelimit.TimeLeftField; requests without it are served. Wrap InTime around a Limiter's
// handler, so that refused requests are not charged.
func InTime(needs func(*http.Request) time.Duration, h http.Handler) http.Handler {
	if h == nil {
		h = http.DefaultServeMux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := ratelimit.ParseCall(r.Header).TimeLeft
		if left > 0 && left < needs(r) {
			late(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ProblemLate is the problem type of a request that InTime refuses.
const ProblemLate = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemLate"

// late refuses a request. It does not read its body.
func late(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Should-Retry", "false")
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	if r.Method != http.MethodHead {
		b := appendKind(nil, ProblemLate, "Not Enough Time", http.StatusServiceUnavailable)
		w.Write(append(b, `The request cannot be answered before the client gives up."}`...))
	}
}
