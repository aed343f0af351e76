package quotatest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// optional are the tests of what a Store may lack.
var optional = []test{
	{name: "Peek decides and takes nothing", run: func(r *run) {
		if !r.peeks() {
			return
		}
		c, other := r.charge("key", 2, quota.PerSecond(3)), r.charge("other", 1, quota.PerHour(1))
		for range 3 {
			if ds := r.peek(c, other); !ds[0].Allowed || ds[0].Remaining != 3 || ds[0].ResetAfter != 0 || ds[0].NextAfter != 0 || ds[1].Remaining != 1 {
				r.t.Errorf("fresh: %+v", ds)
			}
		}
		r.allowed(c)
		for range 3 {
			if d := r.peek(c)[0]; d.Allowed || d.Remaining != 1 || d.RetryAfter != 333_334*µs || !d.At.Equal(r.now()) {
				r.t.Errorf("charged: %+v", d)
			}
		}
		r.move(333_334 * µs)
		if d := r.peek(c)[0]; !d.Allowed || d.Remaining != 2 {
			r.t.Errorf("later: %+v", d)
		}
		if _, err := r.store.(quota.Peeker).Peek(context.Background(), nil, quota.Charge{}); !errors.As(err, new(*quota.ChargeError)) {
			r.t.Errorf("without a Limit: %v", err)
		}
	}},
	{name: "Reserve queues what fits within the wait", run: func(r *run) {
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
			r.t.Errorf("who does not queue comes last: %+v", d)
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
	{name: "Reserve never waits for what exceeds the burst, nor for a dry run", run: func(r *run) {
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
	{name: "a reservation that is given back lets the next ones in", run: func(r *run) {
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
	{name: "Settle refunds, never above the burst", run: func(r *run) {
		if !r.settles() {
			return
		}
		p := quota.PerHour(5)
		r.allowed(r.charge("key", 4, p))
		r.settle(r.charge("key", -3, p))
		r.remaining(4, r.charge("key", 1, p))
		r.settle(r.charge("key", -100, p), r.charge("fresh", -100, p))
		r.remaining(5, r.charge("key", 1, p))
		r.remaining(5, r.charge("fresh", 1, p))
		r.settle(r.charge("key", -1<<63, p))
		r.remaining(5, r.charge("key", 1, p))
	}},
	{name: "Settle charges, into debt if need be", run: func(r *run) {
		if !r.settles() {
			return
		}
		p := quota.PerMinute(6)
		r.settle(r.charge("key", 2, p))
		r.remaining(4, r.charge("key", 1, p))
		r.settle(r.charge("key", 10, p), r.charge("key", 1, p))
		d := r.take(r.charge("key", 1, p))[0]
		if d.Allowed || d.Remaining != 0 || d.RetryAfter != 80*s || d.NextAfter != 80*s || d.ResetAfter != 130*s {
			r.t.Errorf("13 of 6 owed: %+v", d)
		}
		r.move(80*s - µs)
		r.remaining(0, r.charge("key", 1, p))
		r.move(µs)
		r.allowed(r.charge("key", 1, p))
	}},
	{name: "Settle of nothing changes nothing", run: func(r *run) {
		if !r.settles() {
			return
		}
		p := quota.PerMinute(6)
		r.settle()
		r.settle(r.charge("key", 0, p))
		r.remaining(6, r.charge("key", 1, p))
	}},
	{name: "a debt has a bound, and is paid back", run: func(r *run) {
		if !r.settles() {
			return
		}
		p := quota.PerSecond(1000)
		for range 3 {
			r.settle(r.charge("key", 1<<63-1, p))
		}
		d := r.take(r.charge("key", 1, p))[0]
		if d.Allowed || d.RetryAfter <= h || d.ResetAfter < d.RetryAfter {
			r.t.Errorf("%+v", d)
		}
		r.settle(r.charge("key", -1<<63, p))
		r.allowed(r.charge("key", 1000, p))
	}},
	{name: "Settle refuses what cannot be right", run: func(r *run) {
		if !r.settles() {
			return
		}
		err := r.store.(quota.Settler).Settle(context.Background(), r.charge("key", 1, quota.PerHour(1)), quota.Charge{N: 1})
		var fault *quota.ChargeError
		if !errors.As(err, &fault) || fault.Field != "Limit" || fault.Index != 1 {
			r.t.Errorf("%v", err)
		}
		r.remaining(1, r.charge("key", 1, quota.PerHour(1)))
	}},
	{name: "Reserve waits for its turn in a LeakyBucket, and is not bound by its burst", run: func(r *run) {
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
			r.t.Errorf("there is room for one who waits: %+v", d)
		}
	}},
	{name: "Reserve takes of the windows to come, first in, first out", run: func(r *run) {
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
	{name: "Reserve knows when enough of the window before weighs no more", run: func(r *run) {
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
	{name: "Reserve enters in a log what will be used", run: func(r *run) {
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
	{name: "Reserve goes no further ahead than a day in windows and logs", run: func(r *run) {
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
	{name: "a window that was reserved and given back is not there before its time", run: func(r *run) {
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
	{name: "Settle refunds of a window or a log only what it still counts", run: func(r *run) {
		if !r.settles() {
			return
		}
		for _, test := range []struct {
			policy quota.Policy
			left   [4]int64 // at once, and after refunds of a minute ago, two, and now
		}{
			{fixedWindow(10, m), [4]int64{6, 6, 6, 8}},
			{slidingWindow(10, m), [4]int64{2, 4, 4, 6}},
			{slidingLog(10, m), [4]int64{6, 6, 6, 8}},
		} {
			r.align(m)
			c := r.charge("key", 4, test.policy)
			r.allowed(c)
			made := r.now()
			r.move(m)
			r.allowed(c)
			r.remaining(test.left[0], c)
			for i, at := range []time.Time{made, made.Add(-m), r.now()} {
				c.N, c.At = -2, at
				r.settle(c)
				r.remaining(test.left[i+1], c)
			}
			r.move(h)
		}
	}},
	{name: "Settle refunds of a log what was charged then, and otherwise the newest", run: func(r *run) {
		if !r.settles() {
			return
		}
		c := r.charge("key", 3, slidingLog(10, m))
		made := r.now()
		for range 3 {
			r.allowed(c)
			r.move(10 * s)
		}
		c.N, c.At = -2, made.Add(10*s)
		r.settle(c)
		one := r.charge("key", 1, slidingLog(10, m))
		if d := r.probe(one); d.Remaining != 3 || d.NextAfter != 30*s || d.ResetAfter != 50*s {
			r.t.Errorf("%+v", d)
		}
		c.N, c.At = -3, time.Time{}
		r.settle(c)
		if d := r.probe(one); d.Remaining != 6 || d.NextAfter != 30*s || d.ResetAfter != 40*s {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "Settle charges into debt, whatever the algorithm", run: func(r *run) {
		if !r.settles() {
			return
		}
		for _, c := range r.charges(mixed) {
			c.N = 2 * atOnce(c.Limit)
			r.settle(c)
			c.N = 1
			if d := r.denied(c); d.Remaining != 0 || d.RetryAfter <= 0 || d.NextAfter != d.RetryAfter {
				r.t.Errorf("%s: %+v", c.Limit.Name(), d)
			}
			c.N = -2*atOnce(c.Limit) + 1
			r.settle(c)
			r.remaining(atOnce(c.Limit)-1, c)
			c.N = 1<<63 - 1
			r.settle(c, c)
			r.remaining(0, c)
			c.N = -1 << 63
			r.settle(c)
			r.remaining(atOnce(c.Limit), c)
		}
	}},
	{name: "Inspect shows what is counted of a key, by name, and Reset forgets it", run: func(r *run) {
		if !r.inspects() {
			return
		}
		if states := r.inspect("key"); len(states) != 0 {
			r.t.Errorf("a key that nobody has used: %+v", states)
		}
		charges := r.charges(mixed)
		dry := charges[0]
		dry.DryRun = true
		charges = append(charges, dry)
		r.allowed(charges...)
		r.allowed(r.charge("other", 3, quota.PerDay(5)))
		slices.SortFunc(charges, func(c, d quota.Charge) int {
			return cmp.Or(cmp.Compare(c.Limit.Name(), d.Limit.Name()), boolean(c.DryRun)-boolean(d.DryRun))
		})
		states := r.inspect("key")
		if len(states) != len(charges) {
			r.t.Fatalf("%d states of %d", len(states), len(charges))
		}
		now := r.now().UnixMicro()
		for i, c := range charges {
			d := c.Limit.Describe(c.Limit.Drain(states[i].Bucket, now), now)
			if states[i].Name != c.Limit.Name() || states[i].DryRun != c.DryRun || d.Remaining != atOnce(c.Limit)-1 {
				r.t.Errorf("state %d is not of %s: %+v", i, c.Limit.Name(), states[i])
			}
		}
		r.reset("key")
		if states := r.inspect("key"); len(states) != 0 {
			r.t.Errorf("after Reset: %+v", states)
		}
		for _, c := range charges {
			r.remaining(atOnce(c.Limit), c)
		}
		r.remaining(2, r.charge("other", 1, quota.PerDay(5)))
		r.reset("nobody")
	}},
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
