package quotatest

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

// once are tests of IDs.
var once = []test{
	{name: "a charge with an ID is made once, in any algorithm", run: func(r *run) {
		for _, c := range r.charges(mixed) {
			c.N, c.ID = 3, "call 1"
			for range 3 {
				if d := r.take(c)[0]; !d.Allowed || d.Remaining != atOnce(c.Limit)-3 || d.RetryAfter != 0 || d.Delay != 0 {
					r.t.Errorf("%s: %+v", c.Limit.Name(), d)
				}
			}
			c.ID = "call 2"
			r.allowed(c)
			c.ID = ""
			r.allowed(c)
			r.allowed(c)
			r.remaining(atOnce(c.Limit)-12, c)
		}
	}},
	{name: "an ID is remembered for a Window, or until the end of a Calendar's", run: func(r *run) {
		r.align(24 * h)
		r.move(h)
		for _, test := range []struct {
			policy quota.Policy
			window time.Duration
		}{
			{quota.PerMinute(10), m},
			{quota.Policy{Quota: 10, Window: 90 * s, Burst: 3}, 90 * s},
			{leaky(10, 2, m), m}, {fixedWindow(10, m), m}, {slidingWindow(10, m), m}, {slidingLog(10, m), m},
			{calendar(10, quota.Day, nil), 23 * h},
		} {
			c := r.charge("key", 1, test.policy)
			c.ID = "call"
			r.allowed(c)
			r.move(test.window - µs)
			before := r.probe(r.charge("key", 1, test.policy)).Remaining
			r.allowed(c)
			r.remaining(before, c)
			r.move(µs)
			before = r.probe(r.charge("key", 1, test.policy)).Remaining
			r.allowed(c)
			r.remaining(before-1, c)
			r.align(24 * h)
			r.move(h)
		}
	}},
	{name: "a charged ID is allowed even if nothing more fits", run: func(r *run) {
		c := r.charge("key", 2, quota.PerDay(2))
		c.ID = "call"
		r.allowed(c)
		other := c
		other.ID = "another"
		r.denied(other)
		r.allowed(c)
		c.N = 3 // whatever it asks for now
		r.allowed(c)
	}},
	{name: "an ID belongs to its key, its limit and its dry run", run: func(r *run) {
		a := r.charge("a", 1, quota.PerDay(9))
		a.ID = "call"
		b, c, d := a, a, a
		b.Key, c.Limit, d.DryRun = "b", r.compile(quota.PerHour(9)), true
		for range 2 {
			for _, charge := range []quota.Charge{a, b, c, d} {
				r.allowed(charge)
				r.remaining(8, charge)
			}
		}
	}},
	{name: "an ID may have any bytes, and every byte counts", run: func(r *run) {
		ids := []string{
			"a", "A", " ", "a b", "a:b", "\x00", "\n", "é", "\xff", "{a}", strings.Repeat("x", 256),
			strings.Repeat("x", 255), "1", "01",
		}
		c := r.charge("key", 1, quota.PerDay(100))
		for range 2 {
			for _, id := range ids {
				c.ID = id
				r.allowed(c)
			}
		}
		r.remaining(100-int64(len(ids)), c)
		long := c
		long.ID = strings.Repeat("x", 257)
		r.refused("ID", c, long)
	}},
	{name: "denied charges are not remembered", run: func(r *run) {
		c, narrow := r.charge("key", 1, quota.PerDay(10)), r.charge("key", 1, quota.PerHour(1))
		c.ID, narrow.ID = "call", "call"
		r.allowed(r.charge("key", 1, quota.PerHour(1)))
		r.denied(c, narrow)
		r.remaining(10, c)
		r.move(h)
		r.allowed(c, narrow)
		r.remaining(9, c)
		r.allowed(c, narrow)
		r.remaining(9, c)
	}},
	{name: "a repeated call decides on a new charge", run: func(r *run) {
		c, other := r.charge("key", 2, quota.PerDay(10)), r.charge("key", 1, quota.PerHour(2))
		c.ID = "call"
		r.allowed(c, other)
		r.allowed(c, other)
		ds := r.take(c, other)
		if !ds[0].Allowed || ds[0].Remaining != 8 || ds[1].Allowed {
			r.t.Errorf("%+v", ds)
		}
		r.remaining(8, c)
	}},
	{name: "an ID that appears twice in a call is charged once", run: func(r *run) {
		c := r.charge("key", 3, quota.PerDay(10))
		c.ID = "call"
		if ds := r.take(c, c); !ds[0].Allowed || !ds[1].Allowed || ds[1].Remaining != 7 {
			r.t.Errorf("%+v", ds)
		}
		r.remaining(7, c)
		big := r.charge("key", 8, quota.PerDay(10))
		big.ID = "big"
		if ds := r.take(big, big); ds[0].Never || ds[1].Never || ds[1].RetryAfter == 0 {
			r.t.Errorf("8 of 10 fit, even twice: %+v", ds)
		}
	}},
	{name: "Peek decides on an ID as Take does, without remembering it", run: func(r *run) {
		if !r.peeks() {
			return
		}
		c := r.charge("key", 2, quota.PerDay(2))
		c.ID = "call"
		r.peek(c)
		r.allowed(c)
		r.remaining(0, c)
		other := c
		other.ID = "other"
		if ds := r.peek(c, other); !ds[0].Allowed || ds[1].Allowed {
			r.t.Errorf("%+v", ds)
		}
	}},
	{name: "Reserve does not wait for a charged ID", run: func(r *run) {
		if !r.reserves() {
			return
		}
		c := r.charge("key", 1, quota.PerMinute(1))
		r.allowed(c)
		c.ID = "call"
		if wait, ok := r.reserve(s, c); ok || wait != m {
			r.t.Errorf("%v, %v", wait, ok)
		}
		if wait, ok := r.reserve(m, c); !ok || wait != m {
			r.t.Errorf("%v, %v", wait, ok)
		}
		if wait, ok := r.reserve(m, c); !ok || wait != 0 {
			r.t.Errorf("once more: %v, %v", wait, ok)
		}
		r.allowed(c)
		c.ID = "other"
		if wait, ok := r.reserve(m, c); ok || wait != 2*m {
			r.t.Errorf("another: %v, %v", wait, ok)
		}
	}},
	{name: "Settle makes a charge with an ID once, and every one without", run: func(r *run) {
		if !r.settles() {
			return
		}
		for _, c := range r.charges(mixed) {
			c.N = 6
			r.allowed(c)
			c.N, c.ID = -2, "refund"
			r.settle(c)
			r.settle(c, c)
			r.remaining(atOnce(c.Limit)-4, c)
			c.ID = ""
			r.settle(c)
			r.remaining(atOnce(c.Limit)-2, c)
			c.N, c.ID = 5, "more"
			r.settle(c, c)
			r.allowed(c) // charged before
			r.remaining(atOnce(c.Limit)-7, c)
		}
	}},
	{name: "Settle remembers a refund that found nothing owed", run: func(r *run) {
		if !r.settles() {
			return
		}
		c := r.charge("key", -2, quota.PerDay(10))
		c.ID = "refund"
		r.settle(c)
		r.allowed(r.charge("key", 5, quota.PerDay(10)))
		r.settle(c)
		r.remaining(5, c)
		c.N, c.ID = 0, "nothing" // not remembered
		r.settle(c)
		c.N = -2
		r.settle(c)
		r.remaining(7, c)
	}},
	{name: "Reset forgets IDs", run: func(r *run) {
		if !r.inspects() {
			return
		}
		c := r.charge("key", 2, quota.PerDay(10))
		c.ID = "call"
		r.allowed(c)
		r.reset("key")
		r.allowed(c)
		r.remaining(8, c)
	}},
	{name: "of 64 concurrent calls with one ID all are allowed and one is charged", run: func(r *run) {
		for _, c := range r.charges(mixed) {
			c.N, c.ID = 2, "call"
			if n := r.atOnce(2, c); n != 2*callers {
				r.t.Errorf("%s: %d were allowed", c.Limit.Name(), n)
			}
			r.remaining(atOnce(c.Limit)-2, c)
		}
		var allowed atomic.Int64
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		limit := r.compile(quota.PerMinute(5))
		r.together(func(i int) {
			for j := range names {
				c := quota.Charge{Key: "ids", Limit: limit, ID: names[(i+j)%len(names)]}
				if r.take(c)[0].Allowed {
					allowed.Add(1)
				}
			}
		})
		if n := allowed.Load(); n < callers || n > 5*callers {
			r.t.Errorf("%d were allowed, of 5 IDs that fit", n)
		}
		r.remaining(0, quota.Charge{Key: "ids", Limit: limit})
	}},
}
