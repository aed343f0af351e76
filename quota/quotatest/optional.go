package quotatest

import (
	"context"
	"errors"
	"time"

	"github.com/heedhttp/heed/quota"
)

// optional are the tests of what a Store may lack.
var optional = []test{
	{name: "Peek decides and takes nothing", run: func(r *run) {
		if _, ok := r.store.(quota.Peeker); !ok {
			r.lacks("Peek")
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
}

func (r *run) reserves() bool {
	_, ok := r.store.(quota.Reserver)
	if !ok {
		r.lacks("Reserve")
	}
	return ok
}

func (r *run) settles() bool {
	_, ok := r.store.(quota.Settler)
	if !ok {
		r.lacks("Settle")
	}
	return ok
}

func (r *run) lacks(method string) {
	r.t.Logf("%T has no %s", r.store, method)
}
