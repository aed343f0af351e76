package quotatest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

// callers is how many goroutines call a Store at once.
const callers = 64

// contended are tests of what must be exact under concurrent calls.
var contended = []test{
	{name: "of 256 concurrent calls exactly the limit is admitted", run: func(r *run) {
		for _, p := range mixed {
			for _, cost := range []int64{1, 3} {
				c := r.charge("key", cost, p)
				if n, want := r.atOnce(4, c), atOnce(c.Limit)/cost; n != want {
					r.t.Errorf("%s: %d of %d were admitted at a cost of %d", c.Limit.Name(), n, want, cost)
				}
				r.move(31 * 24 * h)
			}
		}
	}},
	{name: "of 256 concurrent calls with several charges none is taken in part", run: func(r *run) {
		user, tenant := r.charge("user", 1, quota.PerDay(50)), r.charge("tenant", 2, quota.PerDay(1000))
		if n := r.atOnce(4, user, tenant); n != 50 {
			r.t.Errorf("%d of 50 were admitted", n)
		}
		r.remaining(900, tenant)
	}},
	{name: "of 256 concurrent calls with all algorithms none is taken in part", run: func(r *run) {
		charges := append(
			r.charges(mixed), r.charge("key", 2, slidingLog(26, h)), r.charge("tenant", 1, quota.PerDay(1000)),
		)
		if n := r.atOnce(4, charges...); n != 13 {
			r.t.Errorf("%d of 13 were admitted", n)
		}
		for _, c := range charges[:len(mixed)] {
			r.remaining(atOnce(c.Limit)-13, c)
		}
		r.remaining(987, charges[len(charges)-1])
	}},
	{name: "calls with the same keys in different orders are exact, without a deadlock", run: func(r *run) {
		names := []string{"a", "b", "c", "d", "e"}
		limits := r.limits([]quota.Policy{quota.PerDay(100_000), slidingWindow(100_000, 24*h), fixedWindow(100_000, 24*h)})
		var asked [5][3]atomic.Int64
		r.together(func(i int) {
			random := rand.New(rand.NewPCG(uint64(i), 10))
			for range 4 {
				charges := make([]quota.Charge, 6)
				for j := range charges {
					k, l := random.IntN(len(names)), random.IntN(len(limits))
					charges[j] = quota.Charge{Key: names[k], Limit: limits[l], N: 2}
					asked[k][l].Add(2)
				}
				r.take(charges...)
			}
		})
		for k, name := range names {
			for l, limit := range limits {
				r.remaining(100_000-asked[k][l].Load(), quota.Charge{Key: name, Limit: limit})
			}
		}
	}},
	{name: "64 concurrent reservations have the waits of 64 sequential ones", run: func(r *run) {
		if !r.reserves() {
			return
		}
		for _, p := range []quota.Policy{
			{Quota: 10, Window: s, Burst: 3}, leaky(10, 3, s), fixedWindow(10, s), slidingWindow(10, s), slidingLog(10, s),
		} {
			r.align(m)
			c := r.charge("key", 1, p)
			var mu sync.Mutex
			var got, want []time.Duration
			r.together(func(int) {
				wait, ok := r.reserve(h, c)
				mu.Lock()
				defer mu.Unlock()
				if got = append(got, wait); !ok {
					r.t.Errorf("%s: a wait of %v is too long", c.Limit.Name(), wait)
				}
			})
			m := newModel()
			for range callers {
				wait, _ := m.reserve([]quota.Charge{c}, h, r.now().UnixMicro())
				want = append(want, wait)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				r.t.Errorf("%s:\n  store %v\n  model %v", c.Limit.Name(), got, want)
			}
		}
	}},
	{name: "64 concurrent takes and refunds leave nothing owed", run: func(r *run) {
		if !r.settles() {
			return
		}
		charges := r.charges(mixed)
		r.together(func(int) {
			for range 4 {
				for _, c := range charges {
					if d := r.take(c)[0]; d.Allowed {
						c.N, c.At = -1, d.At
						r.settle(c)
					}
				}
			}
		})
		for _, c := range charges {
			r.remaining(atOnce(c.Limit), c)
		}
	}},
}

// together runs call in many goroutines at once.
func (r *run) together(call func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range callers {
		all.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	all.Wait()
}

// atOnce returns how many charges were allowed when many goroutines took them, each so
// many times.
func (r *run) atOnce(times int, charges ...quota.Charge) int64 {
	var allowed atomic.Int64
	r.together(func(int) {
		for range times {
			ds, err := r.store.Take(context.Background(), nil, charges...)
			if err != nil {
				r.t.Errorf("Take: %v", err)
			} else if !slices.ContainsFunc(ds, func(d quota.Decision) bool { return !d.Allowed }) {
				allowed.Add(1)
			}
		}
	})
	return allowed.Load()
}
