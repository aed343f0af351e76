package cool

import (
	"maps"
	"sync/atomic"
	"time"
)

// failures counts the failures since the last good answer.
type failures struct {
	count, dials int
	began        time.Duration // when the trouble began: the request of the first one was sent
	first, last  time.Duration // when they came
	slowest      time.Duration // what the slowest of the latest took
	steady       bool          // the host worked well just before the first
	steadyAt     time.Duration // when a failure last came from a host that worked well
}

const (
	// So many failures are an outage, if no good answer came for so long.
	fewestDials    = 3
	fewestFailures = 10
	shortestQuiet  = 100 * time.Millisecond
	// Of a small client, fewer are enough.
	fewerFailures = 5
	longerQuiet   = 300 * time.Millisecond
	fewest        = 3
	longestQuiet  = time.Second
	// Where failures and good answers alternate, it takes more.
	fewestUnsteady = 30
	unsteadyFor    = 5 * time.Second

	steadyStreak = 3                      // so many good answers in a row show that a host works well
	steadyFor    = 500 * time.Millisecond // an outage may begin with some good answers between failures
	staleAfter   = 10 * time.Second       // so long after the last failure another one must show an outage
	forgetAfter  = time.Minute            // so long after a failure it says nothing any more
)

// add counts a failure. streak is how many good answers came since the one before it. down says that the host
// is known to be down: then the count goes on. began is since when there may have been trouble. It reports
// whether this is the first failure.
func (f *failures) add(streak int32, down, dial bool, began, now time.Duration) (first bool) {
	old := f.last == 0 || now-f.last > forgetAfter
	if streak >= steadyStreak || old {
		f.steadyAt = now
	}
	if streak > 0 || old && !down {
		*f = failures{steadyAt: f.steadyAt}
	}
	if first = f.count == 0; first {
		f.began, f.first, f.steady = began, now, now-f.steadyAt <= steadyFor
	}
	f.count++
	f.last = now
	if dial {
		f.dials++
	}
	return first
}

// showOutage reports whether so many failures, for so long without a good answer, are no chance. sent is how
// many requests were sent since the first one: if most of them are under way, they were not turned away.
func (f *failures) showOutage(now time.Duration, sent int) bool {
	quiet := now - f.first
	switch {
	case f.count < fewest, f.count < sent/2:
		return false
	case !f.steady:
		return quiet >= unsteadyFor && f.count >= fewestUnsteady
	case quiet >= longestQuiet, quiet >= longerQuiet && f.count >= fewerFailures:
		return true
	}
	return quiet >= shortestQuiet && (f.dials >= fewestDials || f.count >= fewestFailures)
}

// A Route tells requests apart of which some may fail while the host works for others.
type Route struct{ Method, Path, Credential string }

// routes tells a host that is down from a route that fails while others are answered. The methods whose
// names end in Locked need a lock.
type routes struct {
	failed map[Route]int                  // failures of each route, until a good answer to any is looked at
	bad    atomic.Pointer[map[Route]bool] // routes that are broken; a map is never changed
}

const (
	brokenAfter = 3   // so many failures, while another route is answered, break a route
	maxRoutes   = 100 // when there are more, all are forgotten
)

// any reports whether there is a broken route.
func (r *routes) any() bool { return r.bad.Load() != nil }

// broken reports whether a route fails while others are answered.
func (r *routes) broken(route Route) bool {
	bad := r.bad.Load()
	return bad != nil && (*bad)[route]
}

// failedLocked counts a failure, and reports whether there were so many that the route may be broken.
func (r *routes) failedLocked(route Route) bool {
	n := r.failed[route] + 1
	if r.failed == nil || n == 1 && len(r.failed) >= maxRoutes {
		r.failed = make(map[Route]int)
	}
	r.failed[route] = n
	return n >= brokenAfter
}

// goodLocked notes a good answer: this route is not broken, and others that failed several times are. If
// that is wrong of one, its own next good answer shows it.
func (r *routes) goodLocked(route Route) {
	delete(r.failed, route)
	old := r.bad.Load()
	if old == nil && len(r.failed) == 0 {
		return
	}
	bad := make(map[Route]bool)
	if old != nil {
		maps.Copy(bad, *old)
	}
	delete(bad, route)
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
