package serverside

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A progress is how far a request has got through a Limiter, which it may meet several
// times. It is the request's context.
type progress struct {
	context.Context
	limiter           *Limiter
	method, uri, path string // of the request that it is about

	asked  atomic.Int32 // the rules of stages before this have been asked
	exempt atomic.Bool  // an Allow entry was charged: no rule is

	exposed bool // an earlier stage has exposed the fields

	hasFields bool          // an earlier stage has written fields
	left      float64       // the part of the tightest quota that they tell of
	reset     time.Duration // until that is whole again
}

// Value returns p for its Limiter.
func (p *progress) Value(key any) any {
	if key == p.limiter {
		return p
	}
	return p.Context.Value(key)
}

// progressOf returns the progress of r, and r with it as its context. A request that a
// handler makes of its own, with the context of the one that it serves, has a progress of its
// own: no server has read its URI, or its path is not what http.StripPrefix leaves of it.
func (l *Limiter) progressOf(r *http.Request) (*http.Request, *progress) {
	ctx := r.Context()
	p, ok := ctx.Value(l).(*progress)
	if ok && p.method == r.Method && p.uri == r.RequestURI && strings.HasSuffix(p.path, r.URL.Path) {
		return r, p
	}
	p = &progress{Context: ctx, limiter: l, method: r.Method, uri: r.RequestURI, path: r.URL.Path}
	return r.WithContext(p), p
}

// claim returns the stage from which on rules are to be asked now, if there are
// any before until.
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

// setTightest remembers what the fields say, of which x is the tightest.
func (p *progress) setTightest(x *charged) {
	p.hasFields, p.left, p.reset = true, x.left(), x.decision.ResetAfter
}

// isTighter reports whether an earlier stage has told of a quota that is tighter than x.
func (p *progress) isTighter(x *charged) bool {
	if !p.hasFields || !x.decision.Allowed {
		return false
	}
	left := x.left()
	return p.left < left || p.left == left && p.reset > x.decision.ResetAfter
}
