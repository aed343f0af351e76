package quotatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/heedhttp/heed/quota"
)

// RunGate tests the Gates that open returns:
//
//	quotatest.RunGate(t, func(t *testing.T) quota.Gate { return newGate(t) })
//
// Each Gate must be empty and is used by one test; release its resources in t.Cleanup.
//
// RunGate tests nothing about time: each Gate must itself test what happens to the Holds
// of a process that died. A Gate that is out of reach fails.
func RunGate(t *testing.T, open func(t *testing.T) quota.Gate) {
	for _, test := range gateTests {
		t.Run(test.name, func(t *testing.T) { test.run(&gateRun{t: t, gate: open(t)}) })
	}
}

// A gateRun is one test of one Gate.
type gateRun struct {
	t    *testing.T
	gate quota.Gate
}

var gateTests = []struct {
	name string
	run  func(r *gateRun)
}{
	{"a Hold is released once, and a nil Hold can be", func(r *gateRun) {
		(*quota.Hold)(nil).Release()
		hold, other := r.acquire("key", 3, 1, 2), r.acquire("key", 3, 1, 1)
		for _, hold := range []*quota.Hold{nil, hold} {
			select {
			case <-hold.Lost():
				r.t.Error("lost")
			default:
			}
		}
		together(func(int) { hold.Release() })
		r.acquire("key", 3, 2, 0)
		hold.Release()
		r.denied("key", 3, 1, 0)
		other.Release()
		r.acquire("key", 3, 1, 0)
	}},
	{"the largest limit holds", func(r *gateRun) {
		const most = 1<<53 - 1
		half := r.acquire("key", most, most/2, most/2+1)
		r.acquire("key", most, most/2+1, 0)
		r.denied("key", most, 1, 0)
		half.Release()
		r.denied("key", most, most/2+1, most/2)
	}},
	{"an invalid argument is an error, and takes nothing", func(r *gateRun) {
		for _, test := range []struct {
			field    string
			limit, n int64
		}{
			{"limit", 0, 1}, {"limit", -1, 1}, {"limit", 1 << 53, 1}, {"limit", -1 << 63, -1 << 63}, {"n", 1, -1},
			{"n", 5, -1 << 63},
		} {
			hold, d, err := r.gate.Acquire(context.Background(), "key", test.limit, test.n)
			fault, ok := errors.AsType[*quota.AcquireError](err)
			if !ok || fault.Field != test.field || hold != nil || d != (quota.Decision{}) {
				r.t.Errorf("%+v: %v, %+v, %v", test, hold, d, err)
			}
		}
		r.acquire("key", 1, 1, 0)
	}},
	{"any string is a separate key", func(r *gateRun) {
		for _, key := range append(names, "gate:a", "places") {
			r.acquire(key, 1, 1, 0)
			r.denied(key, 1, 1, 0)
		}
	}},
	{"of 64 concurrent calls exactly the limit is admitted", func(r *gateRun) {
		for i := range 10 {
			var admitted atomic.Int64
			together(func(int) {
				if hold, _ := r.try(fmt.Sprint(i), 20, 1); hold != nil {
					admitted.Add(1)
				}
			})
			if admitted.Load() != 20 {
				r.t.Errorf("%d of 20 places were taken", admitted.Load())
			}
		}
	}},
	{"64 goroutines never exceed the limit, and lose no place", func(r *gateRun) {
		var within, admitted atomic.Int64
		together(func(int) {
			for i := range int64(20) {
				n := 1 + i%3
				if hold, d := r.try("key", 20, n); hold != nil {
					admitted.Add(1)
					if now := within.Add(n); now > 20 || d.Remaining > 20-n {
						r.t.Errorf("%d within, and %+v", now, d)
					}
					within.Add(-n)
					hold.Release()
				}
			}
		})
		if admitted.Load() < callers {
			r.t.Errorf("only %d were admitted", admitted.Load())
		}
		r.acquire("key", 20, 20, 0)
	}},
	{"random calls agree with a model", func(r *gateRun) {
		for seed := range uint64(3) {
			r.follow(rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("seed ", seed))
		}
	}},
}

// follow compares random calls with a model: how many places of a key are in use, whatever the
// limits that they were taken with. In the end all are free.
func (r *gateRun) follow(random *rand.Rand, name string) {
	type held struct {
		key  string
		n    int64
		hold *quota.Hold
	}
	used, holds := map[string]int64{}, []held{}
	release := func(i int) {
		used[holds[i].key] -= holds[i].n
		holds[i].hold.Release()
		holds = append(holds[:i], holds[i+1:]...)
	}
	for step := range 400 {
		if len(holds) > 0 && random.IntN(3) == 0 {
			release(random.IntN(len(holds)))
			continue
		}
		key, limit, n := fmt.Sprint(name, random.IntN(3)), 1+random.Int64N(20), random.Int64N(6)
		if random.IntN(20) == 0 {
			n = random.Int64()
		}
		places, before := max(n, 1), used[key] // 0 counts as 1
		hold, d := r.try(key, limit, n)
		fits := places <= limit-before
		if fits {
			used[key] += places
			holds = append(holds, held{key, places, hold})
		}
		if d.Allowed != fits || d.Never != (places > limit) || d.Remaining != max(0, limit-used[key]) {
			r.t.Fatalf("%s, step %d: %d of %d with %d in use: %+v", name, step, n, limit, before, d)
		}
	}
	for len(holds) > 0 {
		release(0)
	}
	for key := range used {
		r.acquire(key, 1, 1, 0)
	}
}

// try returns the result of Acquire, which must be consistent.
func (r *gateRun) try(key string, limit, n int64) (*quota.Hold, quota.Decision) {
	r.t.Helper()
	hold, d, err := r.gate.Acquire(context.Background(), key, limit, n)
	if err != nil || (hold != nil) != d.Allowed || d.Limit != limit || d.At.IsZero() ||
		d.RetryAfter != 0 || d.NextAfter != 0 || d.ResetAfter != 0 || d.Delay != 0 {
		r.t.Errorf("%d of %d: %v, %+v, %v", n, limit, hold, d, err)
	}
	r.t.Cleanup(hold.Release)
	return hold, d
}

// acquire takes n places, which must be free and leave remaining.
func (r *gateRun) acquire(key string, limit, n, remaining int64) *quota.Hold {
	r.t.Helper()
	hold, d := r.try(key, limit, n)
	if !d.Allowed || d.Never || d.Remaining != remaining {
		r.t.Fatalf("%d of %d: want %d remaining: %+v", n, limit, remaining, d)
	}
	return hold
}

// denied asks for n places, which must not be free.
func (r *gateRun) denied(key string, limit, n, remaining int64) {
	r.t.Helper()
	if _, d := r.try(key, limit, n); d.Allowed || d.Never || d.Remaining != remaining {
		r.t.Fatalf("%d of %d: not denied with %d remaining: %+v", n, limit, remaining, d)
	}
}
