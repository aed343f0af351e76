// Package quotatest tests implementations of quota.Store and quota.Gate.
//
//	func TestStore(t *testing.T) {
//		quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
//			return newStore(now)
//		})
//	}
//
// Each Store is tested with short timelines, one moment a line, with concurrent calls, and with
// random calls that are compared with a model in package math/big: of every Algorithm and every
// method, with IDs, dry runs and Limits that change. A failure tells the seed and the latest calls.
// There are fewer random calls with the race detector or -short.
package quotatest

import (
	"context"
	"errors"
	"sync"
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
	r := start(t, open, newManual())
	reads := r.take(r.charge("key", 1, quota.PerSecond(1)))[0].At.Equal(r.now()) // the clock it is given
	for method, ok := range map[string]bool{
		"Peek": r.peeker != nil, "Settle": r.settler != nil, "Reserve": r.reserver != nil, "Inspect": r.inspector != nil,
	} {
		if !ok {
			t.Logf("%T has no %s", r.store, method)
		}
	}
	for _, test := range tests() {
		t.Run(test.name, func(t *testing.T) {
			switch {
			case reads:
				test.run(start(t, open, newManual()))
			case test.back:
				t.Skip("the Store has a clock of its own")
			default:
				synctest.Test(t, func(t *testing.T) { test.run(start(t, open, bubble{})) })
			}
		})
	}
}

// A test is one sentence about Stores.
type test struct {
	name string
	back bool // the clock is set back
	run  func(r *run)
}

// A run is one test of one Store. Methods that the Store does not have are nil.
type run struct {
	clock
	t         *testing.T
	store     quota.Store
	peeker    quota.Peeker
	settler   quota.Settler
	reserver  quota.Reserver
	inspector quota.Inspector
}

func start(t *testing.T, open func(t *testing.T, now func() time.Time) quota.Store, c clock) *run {
	r := &run{clock: c, t: t, store: open(t, c.now)}
	r.peeker, _ = r.store.(quota.Peeker)
	r.settler, _ = r.store.(quota.Settler)
	r.reserver, _ = r.store.(quota.Reserver)
	r.inspector, _ = r.store.(quota.Inspector)
	return r
}

// A clock can be moved by tests.
type clock interface {
	now() time.Time
	move(d time.Duration)
}

// A manual clock stands still until it is moved.
type manual struct {
	mu sync.Mutex // guards t
	t  time.Time
}

func newManual() *manual { return &manual{t: time.Date(2026, 2, 3, 4, 5, 6, 780_000, time.UTC)} }

func (c *manual) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *manual) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// A bubble is the clock of a bubble of testing/synctest.
type bubble struct{}

func (bubble) now() time.Time       { return time.Now() }
func (bubble) move(d time.Duration) { time.Sleep(d) }

// align moves the clock to the next multiple of window since the Unix epoch.
func (r *run) align(window time.Duration) {
	r.move((window - time.Duration(r.now().UnixMicro())*µs%window) % window)
}

func (r *run) compile(p quota.Policy) *quota.Limit {
	r.t.Helper()
	l, err := p.Compile()
	if err != nil {
		r.t.Fatalf("Compile: %v", err)
	}
	return l
}

func (r *run) charge(key string, n int64, p quota.Policy) quota.Charge {
	r.t.Helper()
	return quota.Charge{Key: key, N: n, Limit: r.compile(p)}
}

// charges returns a charge of n units for each of policies.
func (r *run) charges(n int64, policies []quota.Policy) (charges []quota.Charge) {
	r.t.Helper()
	for _, p := range policies {
		charges = append(charges, r.charge("key", n, p))
	}
	return charges
}

func (r *run) take(charges ...quota.Charge) []quota.Decision {
	r.t.Helper()
	ds, err := r.store.Take(context.Background(), make([]quota.Decision, 1, 3), charges...)
	return r.decided(charges, ds, err)
}

func (r *run) peek(charges ...quota.Charge) []quota.Decision {
	r.t.Helper()
	ds, err := r.peeker.Peek(context.Background(), make([]quota.Decision, 1, 3), charges...)
	return r.decided(charges, ds, err)
}

// decided returns the Decisions that were appended to a zero one, with times that can be compared.
func (r *run) decided(charges []quota.Charge, ds []quota.Decision, err error) []quota.Decision {
	r.t.Helper()
	if err != nil || len(ds) != 1+len(charges) || ds[0] != (quota.Decision{}) {
		r.t.Errorf("%d charges: %+v, %v", len(charges), ds, err)
		return make([]quota.Decision, len(charges))
	}
	for i := range ds {
		ds[i].At = ds[i].At.Round(0).UTC()
	}
	return ds[1:]
}

// allowed reports whether charges are taken.
func (r *run) allowed(charges ...quota.Charge) bool {
	r.t.Helper()
	for i, d := range r.take(charges...) {
		if !d.Allowed && !charges[i].DryRun {
			return false
		}
	}
	return true
}

// remaining checks how many units are left for c, without taking any: another charge of the
// call never fits.
func (r *run) remaining(want int64, c quota.Charge) {
	r.t.Helper()
	c.N, c.ID = 1, ""
	never := r.charge("never", 2, quota.Policy{Name: "never", Quota: 1, Window: time.Hour})
	if d := r.take(c, never)[0]; d.Remaining != want {
		r.t.Errorf("%d units of %s remain, want %d", d.Remaining, c.Limit.Name(), want)
	}
}

func (r *run) reserve(max time.Duration, charges ...quota.Charge) (wait time.Duration, ok bool) {
	r.t.Helper()
	wait, at, ok, err := r.reserver.Reserve(context.Background(), max, charges...)
	if err != nil {
		r.t.Errorf("Reserve: %v", err)
	}
	if now := r.now(); ok && !at.Equal(now.Add(wait)) {
		r.t.Errorf("Reserve says %v at %v, to wait %v", at, now, wait)
	}
	return wait, ok
}

// settle returns what was cut, if anything.
func (r *run) settle(charges ...quota.Charge) *quota.DebtError {
	r.t.Helper()
	err := r.settler.Settle(context.Background(), charges...)
	cut, ok := errors.AsType[*quota.DebtError](err)
	if err != nil && !ok {
		r.t.Errorf("Settle: %v", err)
	}
	return cut
}

func (r *run) inspect(key string) []quota.State {
	r.t.Helper()
	states, err := r.inspector.Inspect(context.Background(), key)
	if err != nil {
		r.t.Errorf("Inspect: %v", err)
	}
	return states
}

func (r *run) reset(key string) {
	r.t.Helper()
	if err := r.inspector.Reset(context.Background(), key); err != nil {
		r.t.Errorf("Reset: %v", err)
	}
}
