package quotatest

import (
	"time"

	"github.com/heedhttp/heed/quota"
)

func leaky(n, burst int64, window time.Duration) quota.Policy {
	return quota.Policy{Quota: n, Window: window, Burst: burst, Algorithm: quota.LeakyBucket}
}

func fixedWindow(n int64, window time.Duration) quota.Policy {
	return quota.Policy{Quota: n, Window: window, Algorithm: quota.FixedWindow}
}

func slidingWindow(n int64, window time.Duration) quota.Policy {
	return quota.Policy{Quota: n, Window: window, Algorithm: quota.SlidingWindow}
}

func slidingLog(n int64, window time.Duration) quota.Policy {
	return quota.Policy{Quota: n, Window: window, Algorithm: quota.SlidingLog}
}

func calendar(n int64, c quota.Calendar, in *time.Location) quota.Policy {
	return quota.Policy{Quota: n, Algorithm: quota.FixedWindow, Calendar: c, Location: in}
}

// algorithms are tests of all but TokenBucket, which the other tests use.
var algorithms = []test{
	{name: "LeakyBucket admits one at once, delays others, and denies the next", run: func(r *run) {
		r.follow(leaky(10, 2, s), []moment{
			{0, 1, true, 2, 0, 100 * ms, 100 * ms, 0},
			{0, 1, true, 1, 0, 100 * ms, 200 * ms, 100 * ms},
			{0, 1, true, 0, 0, 100 * ms, 300 * ms, 200 * ms},
			{0, 1, false, 0, 100 * ms, 100 * ms, 300 * ms, 0},
			{100*ms - µs, 1, false, 0, µs, µs, 200*ms + µs, 0},
			{µs, 1, true, 0, 0, 100 * ms, 300 * ms, 200 * ms},
			{250 * ms, 2, true, 0, 0, 50 * ms, 250 * ms, 50 * ms},
			{250 * ms, 3, true, 0, 0, 100 * ms, 300 * ms, 0},
			{h, 1, true, 2, 0, 100 * ms, 100 * ms, 0},
		})
	}},
	{name: "LeakyBucket delays to even intervals", run: func(r *run) {
		c, last := r.charge("key", 1, leaky(7, 5, m)), time.Time{}
		for range 60 {
			if d := r.take(c)[0]; d.Allowed {
				next := r.now().Add(d.Delay)
				if gap := next.Sub(last); gap < 8_571_428*µs {
					r.t.Fatalf("%v after the one before", gap)
				}
				last = next
			}
			r.move(3*s + 7*ms)
		}
	}},
	{name: "several charges of a LeakyBucket are delayed one after the other", run: func(r *run) {
		c := r.charge("key", 1, leaky(10, 5, s))
		for i, d := range r.take(c, c, c) {
			if want := time.Duration(i) * 100 * ms; !d.Allowed || d.Delay != want {
				r.t.Errorf("charge %d: %+v", i, d)
			}
		}
	}},
	{name: "FixedWindow starts at 0 in each window", run: func(r *run) {
		r.align(m)
		r.follow(fixedWindow(5, m), []moment{
			{20 * s, 2, true, 3, 0, 40 * s, 40 * s, 0},
			{10 * s, 3, true, 0, 0, 30 * s, 30 * s, 0},
			{0, 1, false, 0, 30 * s, 30 * s, 30 * s, 0},
			{30*s - µs, 1, false, 0, µs, µs, µs, 0},
			{µs, 4, true, 1, 0, m, m, 0},
			{m - µs, 2, false, 1, µs, µs, µs, 0},
			{0, 1, true, 0, 0, µs, µs, 0},
			{µs, 5, true, 0, 0, m, m, 0}, // Twice the Quota in 2 µs
			{h, 5, true, 0, 0, m, m, 0},
		})
	}},
	{name: "FixedWindow of a day follows UTC", run: func(r *run) {
		r.align(24 * h)
		r.follow(calendar(3, quota.Day, nil), []moment{
			{0, 2, true, 1, 0, 24 * h, 24 * h, 0},
			{24*h - µs, 2, false, 1, µs, µs, µs, 0},
			{µs, 2, true, 1, 0, 24 * h, 24 * h, 0},
		})
	}},
	{name: "FixedWindow of a day follows its Location", run: func(r *run) {
		r.align(24 * h) // when it is half past five there
		r.follow(calendar(3, quota.Day, time.FixedZone("IST", 5*3600+1800)), []moment{
			{0, 2, true, 1, 0, 18*h + 30*m, 18*h + 30*m, 0},
			{18*h + 30*m - µs, 2, false, 1, µs, µs, µs, 0},
			{µs, 3, true, 0, 0, 24 * h, 24 * h, 0},
			{23 * h, 1, false, 0, h, h, h, 0},
		})
	}},
	{name: "FixedWindow of a week starts on Monday, of a month on its first day", run: func(r *run) {
		for unit, longest := range map[quota.Calendar]time.Duration{quota.Week: 7 * 24 * h, quota.Month: 31 * 24 * h} {
			c := r.charge("key", 1, calendar(1, unit, nil))
			r.align(24 * h)
			for range 3 {
				d := r.take(c)[0]
				if !d.Allowed || d.ResetAfter <= 0 || d.ResetAfter > longest {
					r.t.Fatalf("%v: %+v", unit, d)
				}
				r.move(d.ResetAfter - µs)
				if d := r.denied(c); d.RetryAfter != µs {
					r.t.Fatalf("%v: %+v", unit, d)
				}
				r.move(µs)
				starts := r.now().UTC()
				if unit == quota.Week && starts.Weekday() != time.Monday || unit == quota.Month && starts.Day() != 1 {
					r.t.Fatalf("a %v starts on %v", unit, starts)
				}
			}
		}
	}},
	{name: "SlidingWindow counts the previous window by its weight", run: func(r *run) {
		r.align(m)
		r.follow(slidingWindow(10, m), []moment{
			{30 * s, 10, true, 0, 0, 36 * s, 90 * s, 0},
			{0, 1, false, 0, 36 * s, 36 * s, 90 * s, 0},
			{0, 10, false, 0, 90 * s, 36 * s, 90 * s, 0},
			{30 * s, 1, false, 0, 6 * s, 6 * s, 60 * s, 0},
			{6*s - µs, 1, false, 0, µs, µs, 54*s + µs, 0},
			{µs, 1, true, 0, 0, 6 * s, 114 * s, 0},
			{24 * s, 5, false, 4, 6 * s, 6 * s, 90 * s, 0},
			{0, 4, true, 0, 0, 6 * s, 90 * s, 0},
			{30 * s, 5, true, 0, 0, 12 * s, 120 * s, 0},
			{108*s - µs, 10, false, 8, 12*s + µs, µs, 12*s + µs, 0},
			{12 * s, 10, false, 9, µs, µs, µs, 0},
			{µs, 10, true, 0, 0, 66 * s, 120 * s, 0},
			{h, 10, true, 0, 0, 66 * s, 120 * s, 0},
		})
	}},
	{name: "a full window leaves no room at the start of the next", run: func(r *run) {
		r.align(m)
		c := r.charge("key", 10, slidingWindow(10, m))
		r.allowed(c)
		r.move(m + 600*ms)
		c.N = 1
		if d := r.denied(c); d.RetryAfter != 5400*ms {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "SlidingLog admits as much as has expired", run: func(r *run) {
		r.follow(slidingLog(5, m), []moment{
			{20 * s, 2, true, 3, 0, m, m, 0},
			{10 * s, 1, true, 2, 0, 50 * s, m, 0},
			{10 * s, 2, true, 0, 0, 40 * s, m, 0},
			{0, 1, false, 0, 40 * s, 40 * s, m, 0},
			{0, 3, false, 0, 50 * s, 40 * s, m, 0},
			{0, 5, false, 0, m, 40 * s, m, 0},
			{40*s - µs, 1, false, 0, µs, µs, 20*s + µs, 0},
			{µs, 1, true, 1, 0, 10 * s, m, 0},
			{10 * s, 2, true, 0, 0, 10 * s, m, 0},
			{m - µs, 5, false, 3, µs, µs, µs, 0},
			{µs, 5, true, 0, 0, m, m, 0},
			{h, 5, true, 0, 0, m, m, 0},
		})
	}},
	{name: "SlidingLog remembers a thousand single units", run: func(r *run) {
		c := r.charge("key", 1, slidingLog(1000, h))
		for range 1000 {
			r.allowed(c)
			r.move(ms)
		}
		if d := r.denied(c); d.RetryAfter != h-s {
			r.t.Errorf("%+v", d)
		}
		r.move(h - s)
		for range 3 {
			r.allowed(c)
			if d := r.denied(c); d.RetryAfter != ms {
				r.t.Errorf("%+v", d)
			}
			r.move(ms)
		}
	}},
	{name: "a charge above AtOnce never fits, in any algorithm", run: func(r *run) {
		for _, p := range mixed {
			limit := r.compile(p)
			for _, n := range []int64{atOnce(limit) + 1, 1 << 40, 1<<63 - 1} {
				if d := r.denied(quota.Charge{Key: "key", Limit: limit, N: n}); !d.Never || d.RetryAfter != 0 ||
					d.Remaining != atOnce(limit) {
					r.t.Errorf("%d of %s: %+v", n, limit.Name(), d)
				}
			}
			r.allowed(quota.Charge{Key: "key", Limit: limit, N: atOnce(limit)})
		}
	}},
	{name: "charges of different algorithms are taken together or not at all", run: func(r *run) {
		charges := r.charges(mixed)
		for range 7 {
			r.allowed(charges...)
		}
		for i, d := range r.take(append(charges, r.charge("key", 3, quota.PerDay(2)))...) {
			if allowed := i < len(charges); d.Allowed != allowed || d.Never == allowed {
				r.t.Errorf("charge %d: %+v", i, d)
			}
		}
		for _, c := range charges {
			r.remaining(atOnce(c.Limit)-7, c)
		}
	}},
	{name: "a dry run has its own count, in any algorithm", run: func(r *run) {
		for _, c := range r.charges(mixed) {
			c.N = atOnce(c.Limit)
			dry := c
			dry.DryRun = true
			r.allowed(c, dry)
			if ds := r.take(dry, r.charge("other", 1, quota.PerDay(100))); ds[0].Allowed || !ds[1].Allowed {
				r.t.Errorf("%s: %+v", c.Limit.Name(), ds)
			}
			r.denied(c)
		}
	}},
	{name: "a new algorithm under an old name reads what is owed", run: func(r *run) {
		year, month, _ := r.now().UTC().Date()
		r.move(time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Sub(r.now())) // when all windows start
		for _, old := range mixed {
			for _, new := range mixed {
				old.Name, new.Name = "api", "api"
				key := old.Algorithm.String() + new.Algorithm.String() + old.Calendar.String() + new.Calendar.String()
				was, is := r.charge(key, 7, old), r.charge(key, 1, new)
				r.allowed(was)
				r.remaining(atOnce(is.Limit)-7, is)
				r.allowed(is)
				r.remaining(atOnce(is.Limit)-8, is)
				r.remaining(atOnce(was.Limit)-8, was)
			}
		}
	}},
	{name: "after a clock is set back, what was used stays used, and nobody waits longer", back: true, run: func(r *run) {
		for _, ahead := range []time.Duration{h, 30 * 24 * h} {
			r.align(h)
			charges := r.charges(mixed)
			for i := range charges {
				charges[i].N = atOnce(charges[i].Limit)
			}
			r.allowed(charges...)
			r.move(-ahead)
			for _, c := range charges {
				d := r.denied(c)
				if window := c.Limit.Policy().Window; window > 0 && d.RetryAfter > 2*window {
					r.t.Errorf("%s, %v back: %+v", c.Limit.Name(), ahead, d)
				}
			}
			r.move(ahead + 62*24*h)
		}
	}},
	{name: "two versions of a policy in turn admit what one of them admits", run: func(r *run) {
		old := quota.Policy{Name: "api", Quota: 10, Window: h}
		for i, p := range []quota.Policy{
			fixedWindow(10, h), slidingWindow(10, h), slidingLog(10, h), leaky(10, 9, h), {Quota: 10, Window: 24 * h},
			fixedWindow(10, 2*h), slidingWindow(10, 24*h), slidingLog(10, 2*h), calendar(10, quota.Day, nil),
		} {
			p.Name = "api"
			key, taken := p.Algorithm.String()+p.Window.String(), 0
			versions := []quota.Charge{r.charge(key, 1, old), r.charge(key, 1, p)}
			for n := range 200 {
				if r.take(versions[(n+i)%2])[0].Allowed {
					taken++
				}
			}
			if taken != 10 {
				r.t.Errorf("%s beside %s: %d of 10", old.Name, key, taken)
			}
		}
	}},
}

// mixed are policies of all algorithms.
var mixed = []quota.Policy{
	{Quota: 20, Window: h},
	leaky(20, 30, h),
	fixedWindow(20, h),
	calendar(20, quota.Day, nil),
	calendar(20, quota.Month, nil),
	slidingWindow(20, h),
	slidingLog(20, h),
}

// charges returns a charge of one unit for each of policies.
func (r *run) charges(policies []quota.Policy) (charges []quota.Charge) {
	r.t.Helper()
	for _, p := range policies {
		charges = append(charges, r.charge("key", 1, p))
	}
	return charges
}
