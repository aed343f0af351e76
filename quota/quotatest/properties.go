package quotatest

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

// odd are policies whose rates are no round numbers of anything.
var odd = []quota.Policy{
	quota.PerSecond(3),
	quota.PerMinute(7),
	quota.PerDay(99_991),
	quota.PerSecond(70_001),
	{Quota: 5, Window: m},
	{Quota: 17, Window: 30 * s, Burst: 4},
	{Quota: 1, Window: 7 * 24 * h, Burst: 3},
	quota.PerDay(1_000_003), // in ticks of 10 µs
	{Quota: 99_999_999_977, Window: 24 * h, Burst: 1_000_000},
	{Quota: 13, Window: 1_234_567_891 * time.Nanosecond},
}

var properties = []test{
	{name: "F063: who waits exactly RetryAfter is admitted, who comes 1 µs early is not", run: func(r *run) {
		random := rand.New(rand.NewPCG(1, 2))
		for _, p := range odd {
			limit := r.compile(p)
			burst := limit.Policy().Burst
			c := quota.Charge{Key: "key", Limit: limit}
			for tries, trials := 0, 0; trials < 40; tries++ {
				if tries == 10_000 {
					r.t.Fatalf("%s: denied but %d times of %d", limit.Name(), trials, tries)
				}
				r.move(time.Duration(random.Int64N(int64(limit.Tick()/µs)*3+1)) * µs)
				c.N = 1 + random.Int64N(burst)
				d := r.take(c)[0]
				if d.Allowed {
					continue
				}
				trials++
				if d.RetryAfter <= 0 {
					r.t.Fatalf("%s: denied: %+v", limit.Name(), d)
				}
				r.move(d.RetryAfter - µs)
				if early := r.take(c)[0]; early.Allowed || early.RetryAfter != µs {
					r.t.Fatalf("%s: 1 µs before %v: %+v", limit.Name(), d.RetryAfter, early)
				}
				r.move(µs)
				r.allowed(c)
			}
		}
	}},
	{name: "NextAfter is when one more unit than Remaining fits, ResetAfter when all do", run: func(r *run) {
		random := rand.New(rand.NewPCG(3, 4))
		for _, p := range odd {
			limit := r.compile(p)
			for range 20 {
				c := quota.Charge{Key: "key", Limit: limit, N: 1 + random.Int64N(limit.Policy().Burst)}
				d := r.take(c)[0]
				for _, change := range []struct {
					after     time.Duration
					remaining int64
				}{{d.NextAfter, d.Remaining}, {d.ResetAfter - d.NextAfter, limit.Policy().Burst - 1}} {
					if change.after == 0 {
						continue
					}
					r.move(change.after - µs)
					if early := r.probe(c); early.Remaining > change.remaining {
						r.t.Fatalf("%s: 1 µs early %d remain, not %d", limit.Name(), early.Remaining, change.remaining)
					}
					r.move(µs)
					if then := r.probe(c); then.Remaining <= change.remaining && change.remaining == d.Remaining {
						r.t.Fatalf("%s: %d remain, as before", limit.Name(), then.Remaining)
					}
				}
				if d := r.probe(c); d.Remaining != limit.Policy().Burst || d.ResetAfter != 0 {
					r.t.Fatalf("%s: not whole: %+v", limit.Name(), d)
				}
				r.take(c)
			}
		}
	}},
	{name: "an hour of greed is given the burst and the rate, and no unit more", run: func(r *run) {
		c := r.charge("key", 1, quota.PerMinute(7))
		const most = 7 + 7*60
		var taken int64
		for end := r.now().Add(h); !r.now().After(end) && taken <= most; {
			d := r.take(c)[0]
			if d.Allowed {
				taken++
			} else {
				r.move(max(µs, d.RetryAfter))
			}
		}
		if taken != most {
			r.t.Errorf("%d taken, not %d", taken, most)
		}
	}},
	{name: "F074: of 200 at once, exactly as many as the limit are admitted", run: func(r *run) {
		for _, cost := range []int64{1, 3} {
			c := r.charge("key", cost, quota.Policy{Name: "one", Quota: 50 * cost, Window: 24 * h})
			if n := r.atOnce(200, c); n != 50 {
				r.t.Errorf("%d of 50 were admitted at a cost of %d", n, cost)
			}
			r.move(24 * h)
		}
	}},
	{name: "of 200 at once with several charges, none is taken in part", run: func(r *run) {
		user, tenant := r.charge("user", 1, quota.PerDay(50)), r.charge("tenant", 2, quota.PerDay(1000))
		if n := r.atOnce(200, user, tenant); n != 50 {
			r.t.Errorf("%d of 50 were admitted", n)
		}
		r.remaining(900, tenant)
	}},
	{name: "random timelines agree with the model", run: func(r *run) {
		for seed := range uint64(2) {
			r.wander(walk{random: rand.New(rand.NewPCG(seed, 5)), limits: r.limits(odd), most: 1 << 40})
			r.move(365 * 24 * h)
		}
	}},
	{name: "random timelines agree with the model when the clock steps back", back: true, run: func(r *run) {
		// Not for long: a Store may have forgotten what was whole by then.
		r.wander(walk{random: rand.New(rand.NewPCG(6, 7)), limits: r.limits(odd), most: 1 << 30, back: 5 * s})
	}},
	{name: "random timelines agree with the model when numbers change", run: func(r *run) {
		// Not for long: a Store may have forgotten what was whole by other numbers.
		for seed := range uint64(2) {
			r.wander(walk{random: rand.New(rand.NewPCG(seed, 8)), limits: r.limits(versions), most: 1 << 13})
			r.move(365 * 24 * h)
		}
	}},
}

// versions are policies of one name.
var versions = []quota.Policy{
	{Name: "api", Quota: 60, Window: h},
	{Name: "api", Quota: 61, Window: h, Burst: 200},
	{Name: "api", Quota: 77, Window: 97 * m},
	{Name: "api", Quota: 1_000_003, Window: 40 * 24 * h, Burst: 70_000}, // in ticks of 10 µs
	{Name: "api", Quota: 3, Window: 1_234_567_891_011 * time.Nanosecond, Burst: 90},
}

func (r *run) limits(policies []quota.Policy) (limits []*quota.Limit) {
	for _, p := range policies {
		limits = append(limits, r.compile(p))
	}
	return limits
}

// atOnce returns how many of n concurrent Takes of charges were allowed.
func (r *run) atOnce(n int, charges ...quota.Charge) int64 {
	var allowed atomic.Int64
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range n {
		all.Go(func() {
			<-begin
			ds, err := r.store.Take(context.Background(), nil, charges...)
			if err != nil {
				r.t.Errorf("Take: %v", err)
				return
			}
			for _, d := range ds {
				if !d.Allowed {
					return
				}
			}
			allowed.Add(1)
		})
	}
	close(begin)
	all.Wait()
	return allowed.Load()
}

// A walk is a random timeline.
type walk struct {
	random *rand.Rand
	limits []*quota.Limit
	most   int64         // µs of one move
	back   time.Duration // the most that the clock is set back, if at all
}

// charges are one to three, often more than one of a bucket.
func (w *walk) charges() []quota.Charge {
	cs := make([]quota.Charge, 1+w.random.IntN(3))
	for i := range cs {
		limit := w.limits[w.random.IntN(len(w.limits))]
		n := w.random.Int64N(3)
		if w.random.IntN(2) == 0 {
			n = w.random.Int64N(limit.Policy().Burst + 2)
		}
		cs[i] = quota.Charge{Key: []string{"a", "b"}[w.random.IntN(2)], Limit: limit, N: n, DryRun: w.random.IntN(8) == 0}
	}
	return cs
}

// move is how far the clock goes on; wait is what the Store said last.
func (w *walk) move(wait time.Duration) time.Duration {
	longest := time.Duration(w.most) * µs
	switch w.random.IntN(6) {
	case 0:
		return min(wait, longest)
	case 1:
		return max(0, min(wait, longest)-µs)
	case 2, 3:
		return min(longest, time.Duration(w.random.Int64N(1<<(2+w.random.IntN(40))))*µs)
	case 4:
		return -time.Duration(w.random.Int64N(int64(w.back/µs)+1)) * µs
	}
	return 0
}

// wander does the same random things to the store and to the model.
func (r *run) wander(w walk) {
	r.t.Helper()
	m, wait := newModel(), s
	for step := range 1500 {
		wait = r.compare(w.random, m, w.charges(), wait, step)
		r.move(w.move(wait))
	}
}

// compare does one random thing with cs, and returns a wait that it was told.
func (r *run) compare(random *rand.Rand, m *model, cs []quota.Charge, wait time.Duration, step int) time.Duration {
	r.t.Helper()
	_, peeks := r.store.(quota.Peeker)
	_, reserves := r.store.(quota.Reserver)
	_, settles := r.store.(quota.Settler)
	now := r.now().UnixMicro()
	switch kind := random.IntN(10); {
	case kind == 0 && settles:
		for i := range cs {
			cs[i].N = random.Int64N(9) - 6
		}
		r.settle(cs...)
		m.settle(cs, now)
	case kind == 1 && reserves:
		got, ok := r.reserve(wait, cs...)
		want, wantOK := m.reserve(cs, wait, now)
		if got != want || ok != wantOK {
			r.t.Fatalf("step %d: Reserve %v: %v, %v; the model %v, %v", step, cs, got, ok, want, wantOK)
		}
		return got
	case kind == 2 && peeks:
		r.agree(step, cs, r.peek(cs...), m.take(cs, false, now))
	default:
		ds := r.take(cs...)
		r.agree(step, cs, ds, m.take(cs, true, now))
		return max(ds[0].RetryAfter, ds[len(ds)-1].NextAfter)
	}
	return wait
}

func (r *run) agree(step int, cs []quota.Charge, got, want []quota.Decision) {
	r.t.Helper()
	for i := range want {
		if !got[i].At.Equal(want[i].At) {
			r.t.Fatalf("step %d: At %v, not %v", step, got[i].At, want[i].At)
		}
		got[i].At = want[i].At
	}
	if !reflect.DeepEqual(got, want) {
		r.t.Fatalf("step %d: %d charges of %v\n  store %+v\n  model %+v", step, len(cs), cs, got, want)
	}
}
