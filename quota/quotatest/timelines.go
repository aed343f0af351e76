package quotatest

import (
	"context"
	"errors"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	µs = time.Microsecond
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
)

// A moment is one Take of n units, some time after the previous moment, and its Decision.
type moment struct {
	after     time.Duration
	n         int64
	allowed   bool
	remaining int64
	retry     time.Duration
	next      time.Duration
	reset     time.Duration
	delay     time.Duration
}

// follow takes from one key under p.
func (r *run) follow(p quota.Policy, moments []moment) {
	r.t.Helper()
	limit := r.compile(p)
	for i, want := range moments {
		r.move(want.after)
		d := r.take(quota.Charge{Key: "key", Limit: limit, N: want.n})[0]
		got := moment{want.after, want.n, d.Allowed, d.Remaining, d.RetryAfter, d.NextAfter, d.ResetAfter, d.Delay}
		if got != want {
			r.t.Fatalf("moment %d:\n got %v\nwant %v", i, got, want)
		}
		if d.Limit != p.Quota || d.Never || !d.At.Equal(r.now()) {
			r.t.Fatalf("moment %d: Limit %d, Never %v, At %v at %v", i, d.Limit, d.Never, d.At, r.now())
		}
	}
}

var timelines = []test{
	{name: "a new bucket is full and refills continuously", run: func(r *run) {
		r.follow(quota.PerMinute(60), []moment{
			{0, 1, true, 59, 0, s, s, 0},
			{0, 1, true, 58, 0, s, 2 * s, 0},
			{500 * ms, 1, true, 57, 0, 500 * ms, 2500 * ms, 0},
			{2500 * ms, 1, true, 59, 0, s, s, 0},
			{0, 59, true, 0, 0, s, 60 * s, 0},
			{0, 1, false, 0, s, s, 60 * s, 0},
			{s - µs, 1, false, 0, µs, µs, 59*s + µs, 0},
			{µs, 1, true, 0, 0, s, 60 * s, 0},
			{h, 1, true, 59, 0, s, s, 0},
		})
	}},
	{name: "weighted costs", run: func(r *run) {
		r.follow(quota.Policy{Quota: 5, Window: s}, []moment{
			{0, 3, true, 2, 0, 200 * ms, 600 * ms, 0},
			{0, 3, false, 2, 200 * ms, 200 * ms, 600 * ms, 0},
			{0, 2, true, 0, 0, 200 * ms, s, 0},
			{0, 5, false, 0, s, 200 * ms, s, 0},
			{s - µs, 5, false, 4, µs, µs, µs, 0},
			{µs, 5, true, 0, 0, 200 * ms, s, 0},
		})
	}},
	{name: "a burst above the quota can be used at once and comes back at the rate", run: func(r *run) {
		r.follow(quota.Policy{Quota: 1, Window: s, Burst: 3}, []moment{
			{0, 3, true, 0, 0, s, 3 * s, 0},
			{0, 1, false, 0, s, s, 3 * s, 0},
			{2 * s, 2, true, 0, 0, s, 3 * s, 0},
		})
	}},
	{name: "a burst below the quota", run: func(r *run) {
		r.follow(quota.Policy{Quota: 10, Window: s, Burst: 1}, []moment{
			{0, 1, true, 0, 0, 100 * ms, 100 * ms, 0},
			{100*ms - µs, 1, false, 0, µs, µs, µs, 0},
			{µs, 1, true, 0, 0, 100 * ms, 100 * ms, 0},
		})
	}},
	{name: "waits are rounded up to the tick", run: func(r *run) {
		r.follow(quota.PerSecond(3), []moment{
			{0, 3, true, 0, 0, 333_334 * µs, s, 0},
			{333_333 * µs, 1, false, 0, µs, µs, 666_667 * µs, 0},
			{µs, 1, true, 0, 0, 333_333 * µs, s, 0},
			{333_332 * µs, 1, false, 0, µs, µs, 666_668 * µs, 0},
			{µs, 1, true, 0, 0, 333_333 * µs, s, 0},
			{333_333 * µs, 1, true, 0, 0, 333_334 * µs, s, 0},
		})
	}},
	{name: "many units come back in one tick", run: func(r *run) {
		r.follow(quota.Policy{Quota: 5_000_000, Window: s, Burst: 12}, []moment{
			{0, 12, true, 0, 0, µs, 3 * µs, 0},
			{µs, 6, false, 5, µs, µs, 2 * µs, 0},
			{0, 5, true, 0, 0, µs, 3 * µs, 0},
			{2 * µs, 11, false, 10, µs, µs, µs, 0},
		})
	}},
	{name: "a policy too fine for 1 µs is counted in coarser ticks", run: func(r *run) {
		r.follow(quota.PerDay(1_000_003), []moment{
			{0, 1_000_003, true, 0, 0, 86_400 * µs, 24 * h, 0},
		})
	}},
	{name: "zero units count as one", run: func(r *run) {
		r.follow(quota.PerSecond(2), []moment{
			{0, 0, true, 1, 0, 500 * ms, 500 * ms, 0},
			{0, 0, true, 0, 0, 500 * ms, s, 0},
			{0, 0, false, 0, 500 * ms, 500 * ms, s, 0},
		})
	}},
	{name: "polling after exactly RetryAfter succeeds", run: func(r *run) {
		c := r.charge("key", 1, quota.Policy{Quota: 5, Window: 60 * s})
		for range 5 {
			r.allowed(c)
		}
		for waited := time.Duration(0); waited < 12*s; waited += 100 * ms {
			if d := r.take(c)[0]; d.Allowed || d.RetryAfter != 12*s-waited {
				r.t.Fatalf("after %v: %+v", waited, d)
			}
			r.move(100 * ms)
		}
		r.allowed(c)
	}},
	{name: "a charge above the burst never fits, and Never is set", run: func(r *run) {
		p := quota.Policy{Quota: 5, Window: s}
		for _, n := range []int64{6, 1 << 40, 1<<63 - 1} {
			d := r.take(r.charge("key", n, p))[0]
			if d.Allowed || !d.Never || d.RetryAfter != 0 || d.Remaining != 5 {
				r.t.Errorf("%d of 5: %+v", n, d)
			}
		}
		r.allowed(r.charge("key", 5, p))
	}},
	{name: "an invalid charge is an error, and takes nothing", run: func(r *run) {
		good := r.charge("key", 1, quota.PerHour(1))
		r.refused("N", good, r.charge("key", -1, quota.PerHour(1)))
		r.refused("N", good, r.charge("key", -1<<63, quota.PerHour(1)))
		r.refused("Limit", good, quota.Charge{Key: "key"})
		r.refused("Limit", good, quota.Charge{Key: "key", Limit: new(quota.Limit)})
		r.allowed(good)
	}},
	{name: "Decisions are appended, one for each charge", run: func(r *run) {
		a, b := r.charge("key", 1, quota.PerHour(7)), r.charge("key", 2, quota.PerDay(9))
		ds, err := r.store.Take(context.Background(), make([]quota.Decision, 1, 5), a, b)
		if err != nil || len(ds) != 3 || ds[0] != (quota.Decision{}) || ds[1].Remaining != 6 || ds[2].Remaining != 7 {
			r.t.Errorf("%+v, %v", ds, err)
		}
		ds, err = r.store.Take(context.Background(), ds[:1])
		if err != nil || len(ds) != 1 {
			r.t.Errorf("without charges: %+v, %v", ds, err)
		}
	}},
	{name: "each key and policy has its own bucket", run: func(r *run) {
		keys := []string{"", "a", "b", "ab", "a:b", "a b", "{a}b", "{a}", "A", "é", "a\x00", "a\n", "60/1m", "aa"}
		policies := []quota.Policy{
			{Name: "a", Quota: 1, Window: h}, {Name: "b", Quota: 1, Window: h}, {Name: "a:b", Quota: 1, Window: h},
			quota.PerHour(1), quota.PerDay(1), {Quota: 1, Window: h, Burst: 2},
		}
		for range 2 {
			for _, key := range keys {
				for _, p := range policies {
					for _, dry := range []bool{true, false} {
						c := r.charge(key, cost(p), p)
						c.DryRun = dry
						r.allowed(c)
					}
				}
			}
			r.move(24 * h)
		}
	}},
	{name: "charges of one key are taken together or not at all", run: func(r *run) {
		wide, narrow := r.charge("key", 1, quota.PerHour(100)), r.charge("key", 1, quota.PerMinute(2))
		r.allowed(wide, narrow)
		r.allowed(narrow, wide)
		for range 3 {
			ds := r.take(wide, narrow)
			if !ds[0].Allowed || ds[0].Remaining != 98 || ds[0].RetryAfter != 0 || ds[1].Allowed || ds[1].RetryAfter != 30*s {
				r.t.Errorf("%+v", ds)
			}
		}
		r.remaining(98, wide)
	}},
	{name: "charges of several keys are taken together or not at all", run: func(r *run) {
		tenant, user := r.charge("tenant", 1, quota.PerHour(100)), r.charge("user", 1, quota.PerMinute(2))
		r.allowed(tenant, user)
		r.allowed(user, tenant)
		for range 3 {
			ds := r.take(tenant, user)
			if !ds[0].Allowed || ds[0].Remaining != 98 || ds[1].Allowed || ds[1].RetryAfter != 30*s {
				r.t.Errorf("%+v", ds)
			}
		}
		r.remaining(98, tenant)
		r.remaining(0, user)
	}},
	{name: "several charges of one bucket add up", run: func(r *run) {
		p := quota.PerSecond(5)
		two := r.charge("key", 2, p)
		if ds := r.take(two, two); ds[0].Remaining != 3 || ds[1].Remaining != 1 {
			r.t.Errorf("%+v", ds)
		}
		ds := r.take(r.charge("key", 1, p), two)
		if !ds[0].Allowed || ds[0].Remaining != 1 || ds[1].Allowed || ds[1].Remaining != 1 || ds[1].RetryAfter != 400*ms {
			r.t.Errorf("%+v", ds)
		}
		ds = r.take(r.charge("key", 3, p), r.charge("key", 3, p))
		if ds[0].Never || ds[1].Allowed || !ds[1].Never || ds[1].RetryAfter != 0 {
			r.t.Errorf("together more than the burst: %+v", ds)
		}
	}},
	{name: "a dry run decides and counts, and never denies", run: func(r *run) {
		real, dry := r.charge("key", 1, quota.PerHour(10)), r.charge("key", 1, quota.PerMinute(2))
		dry.DryRun = true
		for i, want := range []bool{true, true, false, false} {
			ds := r.take(real, dry)
			if !ds[0].Allowed || ds[0].Remaining != int64(9-i) || ds[1].Allowed != want {
				r.t.Errorf("take %d: %+v", i, ds)
			}
		}
		ds := r.take(r.charge("key", 7, quota.PerHour(10)), dry)
		if ds[0].Allowed || ds[1].RetryAfter != 30*s {
			r.t.Errorf("%+v", ds)
		}
		r.move(30 * s)
		r.take(r.charge("key", 7, quota.PerHour(10)), dry) // denied: the dry run is not counted either
		if d := r.take(dry)[0]; !d.Allowed {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "a dry run has its own count", run: func(r *run) {
		dry := r.charge("key", 2, quota.PerHour(2))
		dry.DryRun = true
		r.take(dry)
		r.allowed(r.charge("key", 2, quota.PerHour(2)))
	}},
	{name: "a denial writes nothing, so polling delays nothing", run: func(r *run) {
		c := r.charge("key", 10, quota.PerMinute(10))
		r.allowed(c)
		for range 60 {
			r.move(s - µs)
			r.take(c)
		}
		r.move(59 * µs)
		if r.take(c)[0].Allowed {
			r.t.Error("allowed a tick early")
		}
		r.move(µs)
		r.allowed(c)
	}},
	{name: "a slow bucket is remembered as long as it owes", run: func(r *run) {
		c := r.charge("key", 1, quota.PerDay(10))
		for range 10 {
			r.allowed(c)
		}
		r.move(3601 * s)
		if d := r.take(c)[0]; d.Allowed || d.RetryAfter != 8640*s-3601*s {
			r.t.Errorf("%+v", d)
		}
	}},
	{name: "a clock that is set back gives nothing, and delays nothing", back: true, run: func(r *run) {
		r.follow(quota.PerMinute(60), []moment{
			{0, 1, true, 59, 0, s, s, 0},
			{-h, 1, true, 58, 0, s, 2 * s, 0},
			{0, 58, true, 0, 0, s, 60 * s, 0},
			{-m, 1, false, 0, s, s, 60 * s, 0},
			{-m, 1, false, 0, s, s, 60 * s, 0},
			{2*m + s - µs, 1, false, 0, µs, µs, 59*s + µs, 0},
			{µs, 1, true, 0, 0, s, 60 * s, 0},
		})
	}},
	{name: "new numbers under an old name keep the debt", run: func(r *run) {
		slow := quota.Policy{Name: "api", Quota: 60, Window: m}
		fast := quota.Policy{Name: "api", Quota: 601, Window: m}
		r.allowed(r.charge("key", 60, slow))
		r.allowed(r.charge("key", 541, fast))
		if d := r.take(r.charge("key", 1, fast))[0]; d.Allowed || d.ResetAfter != m {
			r.t.Errorf("601 owed at 601/m: %+v", d)
		}
		// In units, not in time: 601 at 60/m, where 60 may be owed.
		if d := r.take(r.charge("key", 1, slow))[0]; d.Allowed || d.Remaining != 0 || d.RetryAfter != 542*s {
			r.t.Errorf("601 owed at 60/m: %+v", d)
		}
	}},
	{name: "two replicas with different numbers neither forgive nor multiply", run: func(r *run) {
		a := r.charge("key", 1, quota.Policy{Name: "api", Quota: 7, Window: h, Burst: 100})
		b := r.charge("key", 1, quota.Policy{Name: "api", Quota: 13, Window: 7 * m, Burst: 100})
		for range 50 {
			r.allowed(a)
			r.allowed(b)
		}
		for _, c := range []quota.Charge{a, b} {
			if d := r.take(c)[0]; d.Allowed || d.Remaining != 0 {
				r.t.Errorf("%+v", d)
			}
		}
	}},
}

// cost returns the units that empty a bucket of p.
func cost(p quota.Policy) int64 {
	if p.Burst > 0 {
		return p.Burst
	}
	return p.Quota
}

// refused checks that Take returns an error that names a field of the last charge.
func (r *run) refused(field string, charges ...quota.Charge) {
	r.t.Helper()
	dst := make([]quota.Decision, 1, 4)
	ds, err := r.store.Take(context.Background(), dst, charges...)
	var fault *quota.ChargeError
	if !errors.As(err, &fault) || fault.Field != field || fault.Index != len(charges)-1 || len(ds) != 1 {
		r.t.Errorf("%d Decisions, want an error for %s, got %v", len(ds), field, err)
	}
}
