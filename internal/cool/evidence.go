package cool

import (
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/scope"
)

// failures are those since the last good answer.
type failures struct {
	count, dials int
	began        time.Duration // when the first was sent
	first, last  time.Duration // when they came
	slowest      time.Duration // what the slowest took
	steadyAt     time.Duration // when the host last worked well before a failure
	steady       bool          // that was just before the first
}

const (
	// So many failures are an outage, if no good answer came for so long.
	fewestDials    = 3
	fewestFailures = 10
	shortestQuiet  = 100 * time.Millisecond
	// Of a small client, fewer are enough.
	fewerFailures = 5
	longerQuiet   = 300 * time.Millisecond
	fewestSlowly  = 3
	slowly        = time.Second
	// Where failures and good answers alternate, it takes more.
	fewestUnsteady = 30
	unsteadyFor    = 5 * time.Second

	steady      = 3                      // so many good answers in a row show that a host works
	steadyFor   = 500 * time.Millisecond // for so long, whatever else comes
	forgetAfter = 5 * time.Minute        // without a failure, what went before says nothing
)

// add counts a failure that took some time. streak is how many good answers came since the one before it.
func (f *failures) add(streak int32, down, dial bool, took, now time.Duration) {
	old := now-f.last > forgetAfter
	if streak >= steady || old {
		f.steadyAt = now
	}
	if streak > 0 || old && !down {
		*f = failures{steadyAt: f.steadyAt}
	}
	if f.count == 0 {
		f.began, f.first, f.steady = now-took, now, now-f.steadyAt <= steadyFor
	}
	f.count++
	f.last, f.slowest = now, max(f.slowest, took)
	if dial {
		f.dials++
	}
}

// showOutage reports whether so many failures without a good answer are no chance.
func (f *failures) showOutage(now time.Duration) bool {
	quiet := now - f.first
	switch {
	case f.count < fewestSlowly:
		return false
	case !f.steady:
		return quiet >= unsteadyFor && f.count >= fewestUnsteady
	case quiet >= slowly, quiet >= longerQuiet && f.count >= fewerFailures:
		return true
	}
	return quiet >= shortestQuiet && (f.dials >= fewestDials || f.count >= fewestFailures)
}

// routes tells a host that is down from a route that fails while others are answered. The methods whose
// names end in Locked need a lock.
type routes struct {
	failed map[string]int                  // failures of each route since its last good answer
	bad    atomic.Pointer[map[string]bool] // routes that are broken; a map is never changed
}

const (
	brokenAfter = 3   // so many failures, while another route is answered, break a route
	maxRoutes   = 100 // more are not remembered
)

// broken reports whether the route of req fails while others are answered.
func (r *routes) broken(req *http.Request) bool {
	bad := r.bad.Load()
	return bad != nil && (*bad)[scope.Route(req)]
}

// failedLocked counts a failure, and reports whether there were so many that the route may be broken.
func (r *routes) failedLocked(route string) bool {
	if r.failed == nil || len(r.failed) >= maxRoutes {
		r.failed = make(map[string]int)
	}
	r.failed[route]++
	return r.failed[route] >= brokenAfter
}

// answeredLocked notes a good answer: this route is not broken, and others that failed several times are.
func (r *routes) answeredLocked(route string) {
	bad := make(map[string]bool)
	if old := r.bad.Load(); old != nil {
		maps.Copy(bad, *old)
	}
	delete(bad, route)
	delete(r.failed, route)
	for other, n := range r.failed {
		if n >= brokenAfter && len(bad) < maxRoutes {
			bad[other] = true
			delete(r.failed, other)
		}
	}
	if len(bad) == 0 {
		r.bad.Store(nil)
		return
	}
	r.bad.Store(&bad)
}
