package quotatest

import (
	"time"

	"github.com/heedhttp/heed/quota"
)

// reserving are the tests of a quota.Reserver.
var reserving = []test{
	{name: "Reserve takes what fits within the wait, in order", run: func(r *run) {
		if !r.reserves() {
			return
		}
		c := r.charge("key", 1, quota.Policy{Quota: 10, Window: s, Burst: 2})
		for i, want := range []time.Duration{0, 0, 100 * ms, 200 * ms, 300 * ms} {
			if wait, ok := r.reserve(300*ms, c); !ok || wait != want {
				r.t.Errorf("reservation %d: %v, %v", i, wait, ok)
			}
		}
		for range 3 {
			if wait, ok := r.reserve(400*ms-µs, c); ok || wait != 400*ms {
				r.t.Errorf("beyond the wait: %v, %v", wait, ok)
			}
		}
		if d := r.take(c)[0]; d.Allowed || d.Remaining != 0 || d.RetryAfter != 400*ms || d.ResetAfter != 500*ms {
			r.t.Errorf("a caller without a reservation comes last: %+v", d)
		}
		r.move(100 * ms)
		if wait, ok := r.reserve(300*ms, c); !ok || wait != 300*ms {
			r.t.Errorf("later: %v, %v", wait, ok)
		}
	}},
	{name: "Reserve without a wait takes what is free, and no more", run: func(r *run) {
		if !r.reserves() {
			return
		}
		c := r.charge("key", 1, quota.PerSecond(1))
		if wait, ok := r.reserve(-s, c); !ok || wait != 0 {
			r.t.Errorf("%v, %v", wait, ok)
		}
		if wait, ok := r.reserve(0, c); ok || wait != s {
			r.t.Errorf("%v, %v", wait, ok)
		}
	}},
	{name: "Reserve takes all charges or none, and waits for the slowest", run: func(r *run) {
		if !r.reserves() {
			return
		}
		user, tenant := r.charge("user", 2, quota.PerSecond(2)), r.charge("tenant", 1, quota.PerMinute(3))
		for i, want := range []time.Duration{0, s, 2 * s, 20 * s} {
			if wait, ok := r.reserve(20*s, user, tenant); !ok || wait != want {
				r.t.Errorf("reservation %d: %v, %v", i, wait, ok)
			}
		}
		if wait, ok := r.reserve(39*s, user, tenant); ok || wait != 40*s {
			r.t.Errorf("%v, %v", wait, ok)
		}
		if wait, ok := r.reserve(m, user); !ok || wait != 4*s {
			r.t.Errorf("the refused call left something: %v, %v", wait, ok)
		}
	}},
	{name: "Reserve never waits for a charge above the burst, or for a dry run", run: func(r *run) {
		if !r.reserves() {
			return
		}
		c, dry := r.charge("key", 1, quota.PerSecond(1)), r.charge("key", 2, quota.PerHour(1))
		if wait, ok := r.reserve(h, c, dry); ok || wait != quota.Forever {
			r.t.Errorf("%v, %v", wait, ok)
		}
		dry.DryRun = true
		if wait, ok := r.reserve(h, c, dry); !ok || wait != 0 {
			r.t.Errorf("%v, %v", wait, ok)
		}
	}},
	{name: "a refunded reservation makes room for the next", run: func(r *run) {
		if !r.reserves() {
			return
		}
		c, back := r.charge("key", 1, quota.PerSecond(1)), r.charge("key", -1, quota.PerSecond(1))
		r.reserve(m, c)
		r.reserve(m, c)
		back.At = r.now()
		r.settle(back)
		if wait, ok := r.reserve(m, c); !ok || wait != s {
			r.t.Errorf("%v, %v", wait, ok)
		}
	}},
	{name: "Reserve of a LeakyBucket waits for the Delay, without the bound of Burst", run: func(r *run) {
		if !r.reserves() {
			return
		}
		c := r.charge("key", 1, leaky(10, 1, s))
		for i := range 5 {
			if wait, ok := r.reserve(400*ms, c); !ok || wait != time.Duration(i)*100*ms {
				r.t.Errorf("reservation %d: %v, %v", i, wait, ok)
			}
		}
		if wait, ok := r.reserve(500*ms-µs, c); ok || wait != 500*ms {
			r.t.Errorf("beyond the wait: %v, %v", wait, ok)
		}
		if d := r.denied(c); d.RetryAfter != 400*ms {
			r.t.Errorf("there is room for one that waits: %+v", d)
		}
	}},
	{name: "Reserve takes units of future windows, first in, first out", run: func(r *run) {
		if !r.reserves() {
			return
		}
		r.align(m)
		c := r.charge("key", 1, fixedWindow(2, m))
		r.move(50 * s)
		for i, want := range []time.Duration{0, 0, 10 * s, 10 * s, 70 * s} {
			if wait, ok := r.reserve(70*s, c); !ok || wait != want {
				r.t.Errorf("reservation %d: %v, %v", i, wait, ok)
			}
		}
		if d := r.denied(c); d.RetryAfter != 70*s || d.Remaining != 0 || d.NextAfter != 70*s || d.ResetAfter != 130*s {
			r.t.Errorf("%+v", d)
		}
		r.move(70 * s)
		r.allowed(c)
		if d := r.denied(c); d.RetryAfter != m {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "Reserve waits until the weight of the previous window is small enough", run: func(r *run) {
		if !r.reserves() {
			return
		}
		r.align(m)
		c := r.charge("key", 1, slidingWindow(10, m))
		r.allowed(r.charge("key", 10, slidingWindow(10, m)))
		for i, want := range []time.Duration{66 * s, 72 * s, 78 * s} {
			if wait, ok := r.reserve(78*s, c); !ok || wait != want {
				r.t.Errorf("reservation %d: %v, %v", i, wait, ok)
			}
		}
		if d := r.denied(c); d.RetryAfter != 84*s || d.ResetAfter != 180*s {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "Reserve adds future entries to a log", run: func(r *run) {
		if !r.reserves() || !r.settles() {
			return
		}
		c := r.charge("key", 1, slidingLog(2, m))
		r.allowed(c)
		r.move(10 * s)
		r.allowed(c)
		for i, want := range []time.Duration{50 * s, 60 * s, 110 * s} {
			if wait, ok := r.reserve(110*s, c); !ok || wait != want {
				r.t.Errorf("reservation %d: %v, %v", i, wait, ok)
			}
		}
		back := c
		back.N, back.At = -1, r.now().Add(m)
		r.settle(back)
		if d := r.denied(c); d.RetryAfter != 110*s || d.ResetAfter != 170*s {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "Reserve goes at most a day ahead in windows and logs", run: func(r *run) {
		if !r.reserves() {
			return
		}
		r.align(24 * h)
		for _, p := range []quota.Policy{fixedWindow(1, 24*h), calendar(1, quota.Day, nil), slidingLog(1, 24*h)} {
			c := r.charge("key", 1, p)
			for i, want := range []bool{true, true, false} {
				if wait, ok := r.reserve(100*h, c); ok != want || wait != time.Duration(i)*24*h {
					r.t.Errorf("%s, reservation %d: %v, %v", c.Limit.Name(), i, wait, ok)
				}
			}
		}
	}},
	{name: "a refunded future window is not available before its start", run: func(r *run) {
		if !r.reserves() || !r.settles() {
			return
		}
		r.align(m)
		c := r.charge("key", 2, fixedWindow(2, m))
		r.allowed(c)
		if wait, ok := r.reserve(m, c); !ok || wait != m {
			r.t.Errorf("%v, %v", wait, ok)
		}
		back := c
		back.N, back.At = -2, r.now().Add(m)
		r.settle(back)
		if d := r.denied(c); d.RetryAfter != m || d.Remaining != 0 {
			r.t.Errorf("%+v", d)
		}
		r.move(m)
		r.allowed(c)
	}},
}
