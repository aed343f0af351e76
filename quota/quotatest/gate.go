package quotatest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
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

// A gateTest is one sentence about Gates.
type gateTest struct {
	name string
	run  func(r *gateRun)
}

// A gateRun is one test of one Gate.
type gateRun struct {
	t    *testing.T
	gate quota.Gate
}

var gateTests = []gateTest{
	{"20 of 21 are admitted at once, and the 21st after a release", func(r *gateRun) {
		var holds []*quota.Hold
		for i := range int64(20) {
			holds = append(holds, r.admitted("key", 20, 1, 19-i))
		}
		r.denied("key", 20, 1, 0)
		holds[7].Release()
		r.admitted("key", 20, 1, 0)
		r.denied("key", 20, 1, 0)
	}},
	{"places are counted one by one", func(r *gateRun) {
		three := r.admitted("key", 5, 3, 2)
		r.denied("key", 5, 3, 2)
		r.admitted("key", 5, 0, 1)
		r.denied("key", 5, 2, 1)
		r.admitted("key", 5, 1, 0)
		three.Release()
		r.admitted("key", 5, 3, 0)
	}},
	{"a denial changes nothing", func(r *gateRun) {
		hold := r.admitted("key", 2, 2, 0)
		for range 100 {
			r.denied("key", 2, 1, 0)
		}
		hold.Release()
		r.admitted("key", 2, 2, 0)
	}},
	{"a Hold is released once by repeated calls", func(r *gateRun) {
		first := r.admitted("key", 2, 1, 1)
		first.Release()
		first.Release()
		r.admitted("key", 2, 2, 0)
		first.Release()
		r.denied("key", 2, 1, 0)
	}},
	{"a Hold is released once by concurrent calls", func(r *gateRun) {
		for range 10 {
			hold, others := r.admitted("key", 3, 1, 2), r.admitted("key", 3, 1, 1)
			var all sync.WaitGroup
			for range 8 {
				all.Go(hold.Release)
			}
			all.Wait()
			r.admitted("key", 3, 2, 0).Release()
			r.denied("key", 3, 3, 2)
			others.Release()
		}
	}},
	{"a nil Hold can be released, and is not lost", func(r *gateRun) {
		var none *quota.Hold
		none.Release()
		select {
		case <-none.Lost():
			r.t.Error("lost")
		default:
		}
	}},
	{"a held Hold is not lost", func(r *gateRun) {
		hold := r.admitted("key", 1, 1, 0)
		select {
		case <-hold.Lost():
			r.t.Error("lost")
		default:
		}
	}},
	{"more places than the limit never fit, and Never is set", func(r *gateRun) {
		for _, n := range []int64{6, 1 << 40, 1<<53 + 1, 1<<63 - 1} {
			hold, d := r.acquire("key", 5, n)
			if hold != nil || d.Allowed || !d.Never || d.Remaining != 5 || d.Limit != 5 {
				r.t.Errorf("%d of 5: %+v", n, d)
			}
		}
		r.admitted("key", 5, 5, 0)
	}},
	{"the largest limit holds", func(r *gateRun) {
		const most = 1<<53 - 1
		half := r.admitted("key", most, most/2, most/2+1)
		r.admitted("key", most, most/2+1, 0)
		r.denied("key", most, 1, 0)
		half.Release()
		r.denied("key", most, most/2+1, most/2)
		r.admitted("key", most, most/2, 0)
	}},
	{"an invalid argument is an error, and takes nothing", func(r *gateRun) {
		r.refused("limit", 0, 1)
		r.refused("limit", -1, 1)
		r.refused("limit", 1<<53, 1)
		r.refused("limit", -1<<63, -1<<63)
		r.refused("n", 1, -1)
		r.refused("n", 5, -1<<63)
		r.admitted("key", 1, 1, 0)
	}},
	{"any string is a separate key", func(r *gateRun) {
		keys := []string{
			"", "a", "b", "ab", "a:b", "a b", "{a}b", "{a}", "A", "é", "a\x00", "a\n", "aa", "gate:a", "places",
		}
		for _, key := range keys {
			r.admitted(key, 1, 1, 0)
		}
		for _, key := range keys {
			r.denied(key, 1, 1, 0)
		}
	}},
	{"places in use count whatever limit they were taken with", func(r *gateRun) {
		ten := r.admitted("key", 20, 10, 10)
		r.denied("key", 5, 1, 0)
		r.denied("key", 10, 1, 0)
		r.admitted("key", 11, 1, 0)
		r.admitted("key", 20, 8, 1)
		ten.Release()
		r.denied("key", 5, 1, 0)
		r.admitted("key", 10, 1, 0)
	}},
	{"of 64 concurrent calls exactly the limit is admitted", func(r *gateRun) {
		for range 10 {
			var held sync.Map
			var count atomic.Int64
			r.each(64, func() {
				if hold, _ := r.acquire("key", 20, 1); hold != nil {
					held.Store(hold, nil)
					count.Add(1)
				}
			})
			if count.Load() != 20 {
				r.t.Fatalf("%d of 20 places were taken", count.Load())
			}
			held.Range(func(hold, _ any) bool { hold.(*quota.Hold).Release(); return true })
		}
	}},
	{"64 goroutines never exceed the limit, and lose no place", func(r *gateRun) {
		var within, admitted atomic.Int64
		r.each(64, func() {
			for i := range int64(20) {
				n := 1 + i%3
				hold, d := r.acquire("key", 20, n)
				if hold == nil {
					continue
				}
				admitted.Add(1)
				if now := within.Add(n); now > 20 || d.Remaining > 20-n {
					r.t.Errorf("%d within, and %+v", now, d)
				}
				within.Add(-n)
				hold.Release()
			}
		})
		if admitted.Load() < 64 {
			r.t.Errorf("only %d were admitted", admitted.Load())
		}
		r.admitted("key", 20, 20, 0)
	}},
	{"random acquires and releases agree with a model", func(r *gateRun) {
		for seed := range uint64(3) {
			r.follow(rand.New(rand.NewPCG(seed, 106)))
		}
	}},
}

// follow compares a random run with a model: how many places of a key are in use. In the
// end all are free.
func (r *gateRun) follow(random *rand.Rand) {
	r.t.Helper()
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
		key, limit, n := []string{"a", "b", "c"}[random.IntN(3)], 1+random.Int64N(12), random.Int64N(6)
		want := max(n, 1)
		fits := used[key]+want <= limit
		hold, d := r.acquire(key, limit, n)
		if d.Allowed != fits || d.Never != (want > limit) {
			r.t.Fatalf("step %d: %d of %d with %d in use: %+v", step, n, limit, used[key], d)
		}
		if fits {
			used[key] += want
			holds = append(holds, held{key, want, hold})
		}
		if d.Remaining != max(0, limit-used[key]) {
			r.t.Fatalf("step %d: %d of %d in use: %+v", step, used[key], limit, d)
		}
	}
	for len(holds) > 0 {
		release(0)
	}
	for key := range used {
		r.admitted(key, 1, 1, 0).Release()
	}
}

// acquire returns the result of Acquire, which must be consistent.
func (r *gateRun) acquire(key string, limit, n int64) (*quota.Hold, quota.Decision) {
	r.t.Helper()
	hold, d, err := r.gate.Acquire(context.Background(), key, limit, n)
	if err != nil {
		r.t.Errorf("Acquire: %v", err)
		return nil, quota.Decision{}
	}
	if (hold != nil) != d.Allowed {
		r.t.Errorf("Hold %v with %+v", hold, d)
	}
	if d.Limit != limit || d.At.IsZero() || d.RetryAfter != 0 || d.NextAfter != 0 || d.ResetAfter != 0 || d.Delay != 0 {
		r.t.Errorf("%d of %d: %+v", n, limit, d)
	}
	if hold != nil {
		r.t.Cleanup(hold.Release)
	}
	return hold, d
}

// admitted takes n places, which must be free and leave remaining.
func (r *gateRun) admitted(key string, limit, n, remaining int64) *quota.Hold {
	r.t.Helper()
	hold, d := r.acquire(key, limit, n)
	if !d.Allowed || d.Never || d.Remaining != remaining {
		r.t.Fatalf("%d of %d: want %d remaining: %+v", n, limit, remaining, d)
	}
	return hold
}

// denied asks for n places, which must not be free.
func (r *gateRun) denied(key string, limit, n, remaining int64) {
	r.t.Helper()
	if _, d := r.acquire(key, limit, n); d.Allowed || d.Never || d.Remaining != remaining {
		r.t.Fatalf("%d of %d: not denied with %d remaining: %+v", n, limit, remaining, d)
	}
}

// refused checks that Acquire returns an error that names the field.
func (r *gateRun) refused(field string, limit, n int64) {
	r.t.Helper()
	hold, d, err := r.gate.Acquire(context.Background(), "key", limit, n)
	var fault *quota.AcquireError
	if !errors.As(err, &fault) || fault.Field != field || hold != nil || d != (quota.Decision{}) {
		r.t.Errorf("%d of %d: %v, %+v, want an error for %s, got %v", n, limit, hold, d, field, err)
	}
}

// each runs do in n goroutines at once.
func (r *gateRun) each(n int, do func()) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for range n {
		all.Go(func() { <-start; do() })
	}
	close(start)
	all.Wait()
}
