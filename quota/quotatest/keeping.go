package quotatest

import (
	"context"
	"maps"
	"time"

	"github.com/heedhttp/heed/quota"
)

// keeping are tests that need a Suite.
var keeping = []test{
	{name: "every state expires, but not before it owes nothing", run: func(r *run) {
		if r.suite.Kept == nil {
			return
		}
		charges := r.charges(mixed)
		for _, c := range charges {
			before := r.kept()
			d := r.take(c)[0]
			changed := 0
			for name, item := range r.kept() {
				if was, ok := before[name]; ok && was.Value == item.Value {
					continue
				}
				if changed++; item.TTL < d.ResetAfter-s {
					r.t.Errorf("%s: %q expires after %v, but owes for %v", c.Limit.Name(), name, item.TTL, d.ResetAfter)
				}
			}
			if changed == 0 {
				r.t.Errorf("%s: nothing is stored", c.Limit.Name())
			}
		}
		r.expires()
	}},
	{name: "a denial writes nothing, and neither does Peek", run: func(r *run) {
		if r.suite.Kept == nil {
			return
		}
		charges := r.charges(mixed)
		r.allowed(charges...)
		before := r.kept()
		for _, c := range charges {
			never := c
			never.N = atOnce(c.Limit) + 1
			r.denied(c, never)
			r.denied(r.charge("new", 1, c.Limit.Policy()), never)
			if p, ok := r.store.(quota.Peeker); ok {
				_, _ = p.Peek(context.Background(), nil, c)
			}
			if p, ok := r.store.(quota.Reserver); ok {
				_, _, _, _ = p.Reserve(context.Background(), time.Hour, c, never)
			}
			if p, ok := r.store.(quota.Inspector); ok {
				_, _ = p.Inspect(context.Background(), c.Key)
			}
		}
		if !maps.EqualFunc(before, r.kept(), func(a, b Item) bool { return a.Value == b.Value }) {
			r.t.Errorf("before %v\nafter %v", before, r.kept())
		}
	}},
	{name: "an unreadable state owes nothing, and Corrupt counts it", run: func(r *run) {
		for name, spoil := range r.suite.Spoil {
			for _, p := range mixed {
				c := r.charge(name+" "+p.Algorithm.String()+p.Calendar.String(), 1, p)
				r.allowed(c, c)
				spoil(r.t, r.store, c)
				var before int64
				if r.suite.Corrupt != nil {
					before = r.suite.Corrupt(r.store)
				}
				ds, err := r.store.Take(context.Background(), nil, c)
				if err != nil {
					continue
				}
				if !ds[0].Allowed || ds[0].Remaining != atOnce(c.Limit)-1 {
					r.t.Errorf("%s, %s: %+v", name, c.Limit.Name(), ds[0])
				}
				if r.suite.Corrupt != nil && r.suite.Corrupt(r.store) <= before {
					r.t.Errorf("%s, %s was not counted", name, c.Limit.Name())
				}
				r.remaining(atOnce(c.Limit)-1, c)
			}
		}
		if r.suite.Kept != nil {
			r.expires()
		}
	}},
}

func (r *run) kept() map[string]Item {
	r.t.Helper()
	return r.suite.Kept(r.t, r.store)
}

// expires checks that everything stored expires.
func (r *run) expires() {
	r.t.Helper()
	for name, item := range r.kept() {
		if item.TTL < 0 {
			r.t.Errorf("%q never expires", name)
		}
	}
}
