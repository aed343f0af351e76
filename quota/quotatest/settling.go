package quotatest

import (
	"context"
	"errors"
	"time"

	"github.com/heedhttp/heed/quota"
)

// settling are the tests of a quota.Settler.
var settling = []test{
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
	{name: "Settle of zero units changes nothing", run: func(r *run) {
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
			if cut := r.settle(r.charge("key", 1<<63-1, p)); cut == nil || cut.Index != 0 || cut.Limit != "1000/1s" {
				r.t.Errorf("%+v", cut)
			}
		}
		d := r.take(r.charge("key", 1, p))[0]
		if d.Allowed || d.RetryAfter < 10*s || d.RetryAfter > 10*s+ms || d.ResetAfter != 11*s {
			r.t.Errorf("more than ten windows are owed: %+v", d)
		}
		r.settle(r.charge("key", -1<<63, p))
		r.allowed(r.charge("key", 1000, p))
	}},
	{name: "Settle rejects invalid charges", run: func(r *run) {
		if !r.settles() {
			return
		}
		err := r.store.(quota.Settler).Settle(
			context.Background(), r.charge("key", 1, quota.PerHour(1)), quota.Charge{N: 1},
		)
		var fault *quota.ChargeError
		if !errors.As(err, &fault) || fault.Field != "Limit" || fault.Index != 1 {
			r.t.Errorf("%v", err)
		}
		r.remaining(1, r.charge("key", 1, quota.PerHour(1)))
	}},
	{name: "Settle refunds only what a window or a log still counts", run: func(r *run) {
		if !r.settles() {
			return
		}
		for _, test := range []struct {
			policy quota.Policy
			left   [4]int64 // at once, and after refunds of charges a minute ago, two minutes ago, and now
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
	{name: "Settle refunds the charge at At from a log, otherwise the newest", run: func(r *run) {
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
	{name: "Settle finds the charge to correct by its microsecond", run: func(r *run) {
		if !r.settles() {
			return
		}
		for _, p := range []quota.Policy{fixedWindow(10, 800*ms), slidingLog(10, 800*ms)} {
			r.align(h)
			r.move(2450 * ms) // so that the window starts after the second does
			c := r.charge("key", 4, p)
			r.allowed(c)
			c.N, c.At = -3, r.now()
			r.settle(c)
			r.remaining(9, c)
			r.move(h)
		}
	}},
	{name: "Settle charges into debt, in any algorithm", run: func(r *run) {
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
}
