package serverside

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// A visit is what a Limiter has done for a request so far. It is kept in the
// request's context. Where a Limiter wraps one handler only, nobody will ask, and
// there is none.
type visit struct {
	asked  atomic.Int32 // the rules of stages before this have been asked
	passes bool         // it is exempt, or an Allow entry was charged: no rule is

	told  bool          // an earlier stage has written fields
	left  float64       // the part of the tightest quota that they tell of
	reset time.Duration // until that is whole again
}

// meet returns the visit of r, and r as one that has it.
func (l *Limiter) meet(r *http.Request) (*http.Request, *visit) {
	if v, ok := r.Context().Value(l).(*visit); ok {
		return r, v
	}
	v := new(visit)
	return r.WithContext(context.WithValue(r.Context(), l, v)), v
}

// begin returns the stage from which on rules are to be asked now, if there are
// any before until.
func (v *visit) begin(until Stage) (from Stage, ok bool) {
	for {
		from := v.asked.Load()
		if Stage(from) >= until {
			return until, false
		}
		if v.asked.CompareAndSwap(from, int32(until)) {
			return Stage(from), true
		}
	}
}

// pass is that no rule is asked any more.
func (v *visit) pass() {
	if v != nil {
		v.passes = true
	}
}

// tell remembers what t's fields say.
func (v *visit) tell(t *trial) {
	if v != nil {
		v.told, v.left, v.reset = true, t.left(0), t.decisions[0].ResetAfter
	}
}

// isTighter reports whether an earlier stage has told of a quota that is tighter
// than those of t, which is judged.
func (v *visit) isTighter(t *trial) bool {
	if v == nil || !v.told || !t.decisions[0].Allowed {
		return false
	}
	left := t.left(0)
	return v.left < left || v.left == left && v.reset > t.decisions[0].ResetAfter
}
