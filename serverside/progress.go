package serverside

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A progress records how far a request has got through a Limiter, which it may meet several
// times. It is the request's context.
type progress struct {
	context.Context
	limiter           *Limiter
	method, uri, path string // identify the request

	asked  atomic.Int32 // rules of stages before this one were checked
	exempt atomic.Bool  // no rule applies: the request is exempt, or charged to an Allow entry
	denied atomic.Bool  // by the Limiter: the response is not the handler's

	exposed bool // an earlier stage has called exposeFields

	hasFields bool          // an earlier stage has written fields
	left      float64       // the fraction left of the tightest quota in these fields
	reset     time.Duration // until that quota is full again
}

// Value returns p if key is p's Limiter.
func (p *progress) Value(key any) any {
	if key == p.limiter {
		return p
	}
	return p.Context.Value(key)
}

// progressOf returns the progress of r, and r with it as context. A request that a handler
// creates with the context of the one it serves gets a progress of its own. It is recognized by
// its RequestURI, which no server has set, or by a path that http.StripPrefix cannot have made.
func (l *Limiter) progressOf(r *http.Request) (*http.Request, *progress) {
	ctx := r.Context()
	p, ok := ctx.Value(l).(*progress)
	if ok && p.method == r.Method && p.uri == r.RequestURI && strings.HasSuffix(p.path, r.URL.Path) {
		return r, p
	}
	p = &progress{Context: ctx, limiter: l, method: r.Method, uri: r.RequestURI, path: r.URL.Path}
	return r.WithContext(p), p
}

// claim returns the first stage that the caller has to check, and false if no stage before
// until is left.
func (p *progress) claim(until Stage) (from Stage, ok bool) {
	if p.exempt.Load() {
		return until, false
	}
	for {
		from := p.asked.Load()
		if Stage(from) >= until {
			return until, false
		}
		if p.asked.CompareAndSwap(from, int32(until)) {
			return Stage(from), true
		}
	}
}

// setTightest records that the fields show x as the tightest.
func (p *progress) setTightest(x *charged) {
	p.hasFields, p.left, p.reset = true, x.left(), x.decision.ResetAfter
}

// isTighter reports whether an earlier stage has shown a quota that is tighter than x.
func (p *progress) isTighter(x *charged) bool {
	if !p.hasFields || !x.decision.Allowed {
		return false
	}
	left := x.left()
	return p.left < left || p.left == left && p.reset > x.decision.ResetAfter
}
