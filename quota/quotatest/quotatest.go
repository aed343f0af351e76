// Package quotatest tests implementations of quota.Store.
//
// Every Store is put through the same timelines, one moment a line, and through
// random ones that are compared with a model in package math/big:
//
//	func TestStore(t *testing.T) {
//		quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
//			return newStore(now)
//		})
//	}
package quotatest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Run tests the Stores that open returns. Each must be empty, and is used by one
// test; what it holds may be released in t.Cleanup.
//
// The Store's clock is now, which is set to whole microseconds and sometimes
// back. A Store that takes no notice of now is tested all the same, if it reads
// the time from package time and needs no network: each test is then a bubble of
// testing/synctest, and the clock is never set back.
//
// Peek, Reserve and Settle are tested if the Store has them; if not, that is
// logged.
func Run(t *testing.T, open func(t *testing.T, now func() time.Time) quota.Store) {
	heeds := heedsClock(t, open)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if heeds {
				test.run(start(t, open, newClock()))
				return
			}
			if test.back {
				t.Skip("the Store has a clock of its own")
			}
			synctest.Test(t, func(t *testing.T) { test.run(start(t, open, bubble{})) })
		})
	}
}

// A test is one sentence about Stores.
type test struct {
	name string
	back bool // the clock is set back
	run  func(r *run)
}

var tests = append(append(timelines, properties...), optional...)

// heedsClock reports whether Stores read the clock they are given.
func heedsClock(t *testing.T, open func(*testing.T, func() time.Time) quota.Store) (heeds bool) {
	t.Run("answers with its time", func(t *testing.T) {
		r := start(t, open, newClock())
		heeds = r.take(r.charge("key", 1, quota.PerSecond(1)))[0].At.Equal(r.now())
	})
	return heeds
}

// A clock is what tests move.
type clock interface {
	now() time.Time
	move(d time.Duration)
}

// A set clock stands still until it is moved.
type set struct {
	mu sync.Mutex // guards t
	t  time.Time
}

func newClock() *set { return &set{t: time.Date(2026, 2, 3, 4, 5, 6, 780_000, time.UTC)} }

func (s *set) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.t
}

func (s *set) move(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t = s.t.Add(d)
}

// A bubble is the clock of a bubble of testing/synctest.
type bubble struct{}

func (bubble) now() time.Time       { return time.Now() }
func (bubble) move(d time.Duration) { time.Sleep(d) }

// A run is one test of one Store.
type run struct {
	clock
	t     *testing.T
	store quota.Store
}

func start(t *testing.T, open func(*testing.T, func() time.Time) quota.Store, c clock) *run {
	t.Helper()
	return &run{clock: c, t: t, store: open(t, c.now)}
}

func (r *run) charge(key string, n int64, p quota.Policy) quota.Charge {
	r.t.Helper()
	return quota.Charge{Key: key, N: n, Limit: r.compile(p)}
}

func (r *run) compile(p quota.Policy) *quota.Limit {
	r.t.Helper()
	l, err := p.Compile()
	if err != nil {
		r.t.Fatalf("Compile: %v", err)
	}
	return l
}

func (r *run) take(charges ...quota.Charge) []quota.Decision {
	r.t.Helper()
	ds, err := r.store.Take(context.Background(), nil, charges...)
	return r.checked("Take", ds, err, len(charges))
}

func (r *run) peek(charges ...quota.Charge) []quota.Decision {
	r.t.Helper()
	ds, err := r.store.(quota.Peeker).Peek(context.Background(), nil, charges...)
	return r.checked("Peek", ds, err, len(charges))
}

func (r *run) checked(verb string, ds []quota.Decision, err error, want int) []quota.Decision {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", verb, err)
	}
	if len(ds) != want {
		r.t.Fatalf("%s returned %d Decisions for %d charges", verb, len(ds), want)
	}
	return ds
}

func (r *run) reserve(max time.Duration, charges ...quota.Charge) (wait time.Duration, ok bool) {
	r.t.Helper()
	wait, at, ok, err := r.store.(quota.Reserver).Reserve(context.Background(), max, charges...)
	if err != nil {
		r.t.Fatalf("Reserve: %v", err)
	}
	if now := r.now(); ok && !at.Equal(now.Add(wait)) {
		r.t.Errorf("Reserve says %v at %v, to wait %v", at, now, wait)
	}
	return wait, ok
}

func (r *run) settle(charges ...quota.Charge) {
	r.t.Helper()
	if err := r.store.(quota.Settler).Settle(context.Background(), charges...); err != nil {
		r.t.Fatalf("Settle: %v", err)
	}
}

// allowed takes charges, all of which must fit.
func (r *run) allowed(charges ...quota.Charge) {
	r.t.Helper()
	for i, d := range r.take(charges...) {
		if !d.Allowed {
			r.t.Fatalf("charge %d was denied: %+v", i, d)
		}
	}
}

// remaining checks what a charge of one, that is not made, would find.
func (r *run) remaining(want int64, c quota.Charge) {
	r.t.Helper()
	c.N = 1
	d := r.probe(c)
	if d.Remaining != want {
		r.t.Errorf("%d units remain, not %d", d.Remaining, want)
	}
}

// probe decides on c without taking it: by a charge beside it that never fits.
func (r *run) probe(c quota.Charge) quota.Decision {
	r.t.Helper()
	never := r.charge("never", 2, quota.Policy{Name: "never", Quota: 1, Window: time.Hour})
	return r.take(c, never)[0]
}
