// Package quotatest tests implementations of quota.Store.
//
// Every Store is put through the same timelines, one moment a line, and through
// random ones that are compared with a model in package math/big, for every
// Algorithm; those are shorter with the race detector or -short:
//
//	func TestStore(t *testing.T) {
//		quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
//			return newStore(now)
//		})
//	}
//
// A Suite is for Stores that can also show what they keep.
package quotatest

import (
	"context"
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
// Peek, Reserve, Settle and Inspect are tested if the Store has them; if not, that
// is logged.
func Run(t *testing.T, open func(t *testing.T, now func() time.Time) quota.Store) {
	Suite{Open: open}.Run(t)
}

// A Suite is Run for Stores that can show more than their methods do. All but Open
// may be nil; what is, is not tested.
type Suite struct {
	// Open returns a Store for one test, as for Run.
	Open func(t *testing.T, now func() time.Time) quota.Store

	// Kept returns all that a Store keeps, by any names, and for how long it will if
	// nobody comes: by the clock that makes it forget, be that now or another.
	Kept func(t *testing.T, s quota.Store) map[string]Item

	// Spoil has ways to make unreadable what a Store keeps for a Charge, by what
	// they are called. Where the Charge owes something, it must then be decided as
	// if it owed nothing, or be an error and change nothing; and Corrupt must grow.
	Spoil map[string]func(t *testing.T, s quota.Store, c quota.Charge)

	// Corrupt returns how many unreadable states a Store has met.
	Corrupt func(s quota.Store) int64
}

// An Item is something that a Store keeps.
type Item struct {
	Value string        // which differs when it does
	TTL   time.Duration // how long it will be kept; negative if for ever
}

// Run tests the Stores that suite opens.
func (suite Suite) Run(t *testing.T) {
	heeds := suite.heedsClock(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if heeds {
				test.run(suite.start(t, newClock()))
				return
			}
			if test.back {
				t.Skip("the Store has a clock of its own")
			}
			synctest.Test(t, func(t *testing.T) { test.run(suite.start(t, bubble{})) })
		})
	}
}

// A test is one sentence about Stores.
type test struct {
	name string
	back bool // the clock is set back
	run  func(r *run)
}

// tests are in this order because the random ones take the longest.
var tests = gather(timelines, algorithms, peeking, reserving, settling, inspecting, once, keeping, contended, properties)

func gather(parts ...[]test) (all []test) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// heedsClock reports whether Stores read the clock they are given.
func (suite Suite) heedsClock(t *testing.T) (heeds bool) {
	t.Run("answers with its time", func(t *testing.T) {
		r := suite.start(t, newClock())
		heeds = r.take(r.charge("key", 1, quota.PerSecond(1)))[0].At.Equal(r.now())
	})
	return heeds
}

// A run is one test of one Store.
type run struct {
	clock
	t     *testing.T
	store quota.Store
	suite Suite
}

func (suite Suite) start(t *testing.T, c clock) *run {
	t.Helper()
	return &run{clock: c, t: t, store: suite.Open(t, c.now), suite: suite}
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

func (r *run) inspect(key string) []quota.State {
	r.t.Helper()
	states, err := r.store.(quota.Inspector).Inspect(context.Background(), key)
	if err != nil {
		r.t.Fatalf("Inspect: %v", err)
	}
	return states
}

func (r *run) reset(key string) {
	r.t.Helper()
	if err := r.store.(quota.Inspector).Reset(context.Background(), key); err != nil {
		r.t.Fatalf("Reset: %v", err)
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

// denied takes charges, the last of which must not fit, and returns the Decision
// on it.
func (r *run) denied(charges ...quota.Charge) quota.Decision {
	r.t.Helper()
	ds := r.take(charges...)
	d := ds[len(ds)-1]
	if d.Allowed {
		r.t.Fatalf("the last charge was allowed: %+v", d)
	}
	return d
}

// remaining checks what a charge of one, that is not made, would find.
func (r *run) remaining(want int64, c quota.Charge) {
	r.t.Helper()
	c.N, c.ID = 1, ""
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

// align moves the clock on to a whole multiple of window since the Unix epoch.
func (r *run) align(window time.Duration) {
	into := time.Duration(r.now().UnixMicro()) * µs % window
	r.move((window - into) % window)
}

func (r *run) peeks() bool {
	_, ok := r.store.(quota.Peeker)
	return r.has(ok, "Peek")
}

func (r *run) reserves() bool {
	_, ok := r.store.(quota.Reserver)
	return r.has(ok, "Reserve")
}

func (r *run) settles() bool {
	_, ok := r.store.(quota.Settler)
	return r.has(ok, "Settle")
}

func (r *run) inspects() bool {
	_, ok := r.store.(quota.Inspector)
	return r.has(ok, "Inspect")
}

// has returns ok, and logs it if not.
func (r *run) has(ok bool, method string) bool {
	if !ok {
		r.t.Logf("%T has no %s", r.store, method)
	}
	return ok
}
