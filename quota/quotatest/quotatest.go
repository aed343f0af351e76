// Package quotatest tests implementations of quota.Store and quota.Gate.
//
//	func TestStore(t *testing.T) {
//		quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
//			return newStore(now)
//		})
//	}
//
// Every Store runs the same timelines, one moment a line, and random ones that are
// compared with a model in package math/big, for every Algorithm. The random ones are
// shorter with the race detector or -short.
//
// A Suite is for Stores that can also show what they store.
package quotatest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Run tests the Stores that open returns. Each must be empty and is used by one test;
// release its resources in t.Cleanup.
//
// The Store should read the time from now, which Run sets to whole microseconds and
// sometimes back. A Store that ignores now is tested, too, if it reads the time from
// package time and needs no network: each test is then a bubble of testing/synctest, and
// the clock is never set back.
//
// Peek, Reserve, Settle and Inspect are tested if the Store has them; if not, the log
// says so.
func Run(t *testing.T, open func(t *testing.T, now func() time.Time) quota.Store) {
	Suite{Open: open}.Run(t)
}

// A Suite is Run for Stores that can show more than their methods do. All fields but Open
// may be nil, and are then not tested.
type Suite struct {
	// Open returns a Store for one test, as for Run.
	Open func(t *testing.T, now func() time.Time) quota.Store

	// Kept returns everything that a Store keeps, under any names, and how long it will
	// keep that if nothing happens, by the clock that makes it expire.
	Kept func(t *testing.T, s quota.Store) map[string]Item

	// Spoil has named ways to make the stored state of a Charge unreadable. If the Charge
	// owed something, a spoilt state must count as no debt, or be an error that changes
	// nothing, and Corrupt must grow.
	Spoil map[string]func(t *testing.T, s quota.Store, c quota.Charge)

	// Corrupt returns how many unreadable states a Store has found.
	Corrupt func(s quota.Store) int64
}

// An Item is a stored state.
type Item struct {
	Value string        // differs if the state does
	TTL   time.Duration // until it expires; negative if never
}

// Run tests the Stores that suite opens.
func (suite Suite) Run(t *testing.T) {
	uses := suite.usesClock(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if uses {
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

// tests end with the random ones, which take the longest.
var tests = gather(
	timelines, algorithms, peeking, reserving, settling, inspecting, once, keeping, contended, properties,
)

func gather(parts ...[]test) (all []test) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// usesClock reports whether Stores read the clock they are given.
func (suite Suite) usesClock(t *testing.T) (uses bool) {
	t.Run("reads the given clock", func(t *testing.T) {
		r := suite.start(t, newClock())
		uses = r.take(r.charge("key", 1, quota.PerSecond(1)))[0].At.Equal(r.now())
	})
	return uses
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

// settle returns what was cut, if anything.
func (r *run) settle(charges ...quota.Charge) *quota.DebtError {
	r.t.Helper()
	err := r.store.(quota.Settler).Settle(context.Background(), charges...)
	cut, ok := errors.AsType[*quota.DebtError](err)
	if err != nil && !ok {
		r.t.Fatalf("Settle: %v", err)
	}
	return cut
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

// denied takes charges and returns the Decision on the last one, which must not fit.
func (r *run) denied(charges ...quota.Charge) quota.Decision {
	r.t.Helper()
	ds := r.take(charges...)
	d := ds[len(ds)-1]
	if d.Allowed {
		r.t.Fatalf("the last charge was allowed: %+v", d)
	}
	return d
}

// remaining checks how many units are left for c, without taking any.
func (r *run) remaining(want int64, c quota.Charge) {
	r.t.Helper()
	c.N, c.ID = 1, ""
	d := r.probe(c)
	if d.Remaining != want {
		r.t.Errorf("%d units remain, want %d", d.Remaining, want)
	}
}

// probe decides on c without taking it, by adding a charge that never fits.
func (r *run) probe(c quota.Charge) quota.Decision {
	r.t.Helper()
	never := r.charge("never", 2, quota.Policy{Name: "never", Quota: 1, Window: time.Hour})
	return r.take(c, never)[0]
}

// align moves the clock to the next multiple of window since the Unix epoch.
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

// has returns ok, and logs a missing method.
func (r *run) has(ok bool, method string) bool {
	if !ok {
		r.t.Logf("%T has no %s", r.store, method)
	}
	return ok
}
