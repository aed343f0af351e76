package serverside

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// Repeated reports whether r says that it is not the first attempt of a request, as
// heed's clients do with RetryPolicy.TellServer. It is for Rule.If: a rule with a small
// quota for what is repeated is a retry budget of each key, and refuses repetitions
// before it refuses first attempts. Who does not say so, or lies, gets no more than
// the other rules give him.
func Repeated(r *http.Request) bool { return ratelimit.ParseCall(r.Header).Attempt > 1 }

// InTime returns a handler that has h serve only what can be answered before its client
// gives up: to the others, work for which would be for nobody, it answers 503
// (RFC 9110, section 15.6.4) with X-Should-Retry: false at once. needs says how long
// an answer takes at least; what a client says of its time left is in
// ratelimit.TimeLeftField, and a request that says nothing is served. If h is nil,
// http.DefaultServeMux.
//
// Wrap it around a Limiter's handler, and what is refused is not charged.
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

// ProblemLate is that the client would have given up before it could be answered.
const ProblemLate = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemLate"

// late answers what comes too late. It does not touch the body of r.
func late(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Should-Retry", "false")
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	if r.Method != http.MethodHead {
		b := appendKind(nil, ProblemLate, "Too Little Time", http.StatusServiceUnavailable)
		w.Write(append(b, `The request cannot be answered in the time that is left for it."}`...))
	}
}
