package quotatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

// names are Keys and IDs that a Store could mix up.
var names = []string{"", "a", "b", "ab", "a:b", "a b", "{a}b", "{a}", "A", "é", "a\x00", "a\n", "aa"}

// promises are what random calls do not reach.
var promises = []test{
	{name: "an invalid charge is an error, and takes nothing", run: func(r *run) {
		good := r.charge("key", 1, quota.PerHour(1))
		long, other := good, good
		long.ID, other.Limit = strings.Repeat("x", 257), r.compile(quota.Policy{Name: "1/1h", Quota: 1, Window: m})
		for _, test := range []struct {
			field   string
			settles bool // it is invalid in Settle, too
			bad     quota.Charge
		}{
			{"N", false, r.charge("key", -1, quota.PerHour(1))},
			{"N", false, r.charge("key", -1<<63, quota.PerHour(1))},
			{"Limit", true, quota.Charge{Key: "key", N: 1}},
			{"Limit", true, quota.Charge{Key: "key", N: 1, Limit: new(quota.Limit)}},
			{"Limit", true, other}, // another Shape of the Name
			{"ID", true, long},
		} {
			_, err := r.store.Take(context.Background(), nil, good, test.bad)
			errs := map[string]error{"Take": err}
			if r.peeker != nil {
				_, errs["Peek"] = r.peeker.Peek(context.Background(), nil, good, test.bad)
			}
			if r.reserver != nil {
				_, _, _, errs["Reserve"] = r.reserver.Reserve(context.Background(), h, good, test.bad)
			}
			if r.settler != nil && test.settles {
				errs["Settle"] = r.settler.Settle(context.Background(), good, test.bad)
			}
			for method, err := range errs {
				fault, ok := errors.AsType[*quota.ChargeError](err)
				if !ok || fault.Field != test.field || fault.Index != 1 {
					r.t.Errorf("%s: want an error for %s of charge 1, got %v", method, test.field, err)
				}
			}
		}
		r.remaining(1, good)
	}},
	{name: "each Key, Name and dry run has its own count", run: func(r *run) {
		for _, key := range names {
			for _, name := range []string{"a", "b", "a:b", "A", "a b"} {
				for _, dry := range []bool{true, false} {
					c := r.charge(key, 1, quota.Policy{Name: name, Quota: 1, Window: h})
					c.DryRun = dry
					if d := r.take(c)[0]; !d.Allowed {
						r.t.Errorf("%s of %q: %+v", name, key, d)
					}
				}
			}
		}
	}},
	{name: "every byte of an ID counts, and it is remembered for its Key, Name and dry run", run: func(r *run) {
		c := r.charge("key", 1, quota.PerDay(100))
		ids := append(names[1:], "\xff", strings.Repeat("x", 256), strings.Repeat("x", 255))
		others := []quota.Charge{c, c, c}
		others[0].Key, others[1].Limit, others[2].DryRun = "other", r.compile(quota.PerHour(100)), true
		for range 2 {
			for _, c.ID = range ids {
				for _, other := range append(others, c) {
					other.ID = c.ID
					r.allowed(other)
				}
			}
		}
		for _, c := range append(others, c) {
			r.remaining(100-int64(len(ids)), c)
		}
	}},
	{name: "SlidingLog remembers a thousand single units", run: func(r *run) {
		c := r.charge("key", 1, by(quota.SlidingLog, 1000, h))
		for range 1000 {
			r.allowed(c)
			r.move(ms)
		}
		for _, wait := range []time.Duration{h - s, ms, ms} {
			if d := r.take(c)[0]; d.Allowed || d.RetryAfter != wait {
				r.t.Errorf("wait %v: %+v", wait, d)
			}
			r.move(wait)
			r.allowed(c)
		}
	}},
	{name: "what was used stays used when the clock is set back, and nobody waits longer", back: true, run: func(r *run) {
		for _, ahead := range []time.Duration{h, 30 * 24 * h} {
			r.align(h)
			charges := r.charges(0, mixed)
			for i := range charges {
				charges[i].N = atOnce(charges[i].Limit)
			}
			r.allowed(charges...)
			r.move(-ahead)
			for i, d := range r.take(charges...) {
				window := charges[i].Limit.Policy().Window
				if d.Allowed || window > 0 && d.RetryAfter > 2*window {
					r.t.Errorf("%s, %v back: %+v", charges[i].Limit.Name(), ahead, d)
				}
			}
			r.move(ahead + 62*24*h)
		}
	}},
	{name: "two versions of a policy in turn admit what one of them admits", run: func(r *run) {
		year, month, _ := r.now().UTC().Date()
		r.move(time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Sub(r.now())) // so that no window ends
		for i, old := range mixed {
			for j := 1; j < 5; j += 3 { // the random calls have all pairs
				new := mixed[(i+j)%len(mixed)]
				old.Name, new.Name = "api", "api"
				key, taken := fmt.Sprint(i, " ", j), int64(0)
				a, b := r.charge(key, 1, old), r.charge(key, 1, new)
				for range 40 {
					for _, c := range []quota.Charge{a, b} {
						if r.allowed(c) {
							taken++
						}
					}
				}
				if x, y := atOnce(a.Limit), atOnce(b.Limit); taken < min(x, y) || taken > max(x, y) {
					r.t.Errorf("%s and %s: %d were taken", a.Limit.Shape(), b.Limit.Shape(), taken)
				}
			}
		}
	}},
	{name: "each version of a policy goes on at its own rate", run: func(r *run) {
		day := r.charge("key", 9, quota.Policy{Name: "api", Quota: 10, Window: 24 * h})
		hour := r.charge("key", 1, quota.Policy{Name: "api", Quota: 10, Window: h})
		if !r.allowed(day) || !r.allowed(hour) || r.allowed(hour) {
			r.t.Error("the new version does not begin with what is owed")
		}
		r.move(h)
		if hour.N, day.N = 10, 1; r.allowed(day) || !r.allowed(hour) {
			r.t.Error("10 in an hour do not come back in an hour, or 10 in a day do")
		}
	}},
	{name: "a call whose context has ended or ends is made once or not at all", run: func(r *run) {
		c := r.charge("key", 1, quota.PerDay(1000))
		var made, unknown atomic.Int64
		call := func(ctx context.Context) {
			ds, err := r.store.Take(ctx, nil, c)
			switch {
			case err != nil:
				unknown.Add(1)
			case len(ds) == 1 && ds[0].Allowed:
				made.Add(1)
			}
		}
		together(func(i int) {
			ctx, cancel := context.WithCancel(context.Background())
			if i%2 == 0 {
				cancel()
			} else {
				go cancel()
			}
			call(ctx)
			call(context.Background())
		})
		c.ID = "afterwards"
		if d := r.take(c)[0]; d.Remaining > 999-made.Load() || d.Remaining < 999-made.Load()-unknown.Load() {
			r.t.Errorf("%d were made, and perhaps %d more: %+v", made.Load(), unknown.Load(), d)
		}
	}},
}

// callers is how many goroutines call a Store at once.
const callers = 64

// together runs call in many goroutines at once.
func together(call func(i int)) {
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

// atOnce returns how many calls with charges are allowed when many goroutines make four each.
func (r *run) atOnce(charges ...quota.Charge) int64 {
	var allowed atomic.Int64
	together(func(int) {
		for range 4 {
			if r.allowed(charges...) {
				allowed.Add(1)
			}
		}
	})
	return allowed.Load()
}

// contended are tests of what must be exact under concurrent calls.
var contended = []test{
	{name: "256 concurrent calls are counted exactly", run: func(r *run) {
		for _, c := range r.charges(0, mixed) {
			most := atOnce(c.Limit)
			for _, test := range []struct {
				name, id      string
				n, made, left int64
			}{
				{"units", "", 1, most, 0}, {"several units", "", 3, most / 3, most % 3}, {"an ID", "call", 2, 4 * callers, most - 2},
			} {
				c.Key, c.N, c.ID = test.name, test.n, test.id
				if made := r.atOnce(c); made != test.made {
					r.t.Errorf("%s, %s: %d of %d were admitted", c.Limit.Name(), test.name, made, test.made)
				}
				r.remaining(test.left, c)
			}
			c = r.charge("refunds", 1, c.Limit.Policy())
			if r.settler == nil {
				continue
			}
			together(func(int) {
				for range 4 {
					if d := r.take(c)[0]; d.Allowed {
						back := c
						back.N, back.At = -1, d.At
						r.settle(back)
					}
				}
			})
			r.remaining(most, c)
		}
	}},
	{name: "of 256 concurrent calls with several charges none is taken in part", run: func(r *run) {
		charges := append(r.charges(1, mixed), r.charge("key", 2, by(quota.SlidingLog, 26, h)))
		charges = append(charges, r.charge("tenant", 1, quota.PerDay(1000)))
		if n := r.atOnce(charges...); n != 13 {
			r.t.Errorf("%d of 13 were admitted", n)
		}
		for _, c := range charges[:len(mixed)] {
			r.remaining(atOnce(c.Limit)-13, c)
		}
		r.remaining(987, charges[len(charges)-1])
	}},
	{name: "calls with the same keys in different orders are exact, without a deadlock", run: func(r *run) {
		var all []quota.Charge
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			for _, c := range r.charges(2, []quota.Policy{quota.PerDay(1000), by(quota.SlidingWindow, 1000, 24*h)}) {
				c.Key = key
				all = append(all, c)
			}
		}
		together(func(i int) {
			var charges []quota.Charge
			for _, j := range rand.New(rand.NewPCG(uint64(i), 0)).Perm(len(all)) {
				charges = append(charges, all[j])
			}
			r.allowed(charges[:7]...)
			r.allowed(charges[7:]...)
		})
		for _, c := range all {
			r.remaining(1000-2*callers, c)
		}
	}},
	{name: "64 concurrent reservations have the waits of 64 sequential ones", run: func(r *run) {
		if r.reserver == nil {
			return
		}
		r.align(m)
		for _, c := range r.charges(1, []quota.Policy{
			{Quota: 10, Window: s, Burst: 3}, by(quota.LeakyBucket, 10, s), by(quota.FixedWindow, 10, s),
			by(quota.SlidingWindow, 10, s), by(quota.SlidingLog, 10, s),
		}) {
			var mu sync.Mutex
			var got, want []time.Duration
			together(func(int) {
				wait, _ := r.reserve(h, c)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, wait)
			})
			model := newModel()
			for range callers {
				wait, _ := model.reserve([]quota.Charge{c}, h, r.now().UnixMicro())
				want = append(want, wait)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				r.t.Errorf("%s:\n  store %v\n  model %v", c.Limit.Name(), got, want)
			}
		}
	}},
}
