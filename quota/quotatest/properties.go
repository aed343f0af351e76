package quotatest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/heedhttp/heed/quota"
)

// odd are policies with odd rates.
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
	leaky(7, 5, m),
	leaky(99_991, 1, 24*h),
	leaky(1_000_003, 1000, 24*h),
	fixedWindow(7, m),
	fixedWindow(99_991, 1_234_567*µs),
	slidingWindow(7, m),
	slidingWindow(99_991, 24*h),
	slidingWindow(1_000_003, 24*h), // in ticks of 10 µs
	slidingWindow(70_001, s),
	slidingWindow(5_000_011, 1000*ms), // more than one per tick
	slidingWindow(13, 1_234_567*µs),
	slidingLog(7, m),
	slidingLog(97, 24*h),
	slidingLog(13, 1_234_567*µs),
	calendar(97, quota.Day, nil),
	calendar(7, quota.Week, time.FixedZone("NST", -3*3600-1800)),
	calendar(13, quota.Month, time.FixedZone("NPT", 5*3600+2700)),
}

// versions are policies of one name. In a short test that starts with an hour, none of
// their windows ends and no state becomes free of debt.
var versions = []quota.Policy{
	{Name: "api", Quota: 60, Window: h},
	{Name: "api", Quota: 61, Window: h, Burst: 200},
	{Name: "api", Quota: 77, Window: 97 * m},
	{Name: "api", Quota: 1_000_003, Window: 40 * 24 * h, Burst: 70_000}, // in ticks of 10 µs
	{Name: "api", Quota: 3, Window: 1_234_567_891_011 * time.Nanosecond, Burst: 90},
}

// ways are policies of one name with all algorithms.
var ways = append(versions[:len(versions):len(versions)],
	quota.Policy{Name: "api", Quota: 59, Window: h, Burst: 11, Algorithm: quota.LeakyBucket},
	quota.Policy{Name: "api", Quota: 83, Window: h, Algorithm: quota.FixedWindow},
	quota.Policy{Name: "api", Quota: 71, Algorithm: quota.FixedWindow, Calendar: quota.Day},
	quota.Policy{Name: "api", Quota: 67, Window: h, Algorithm: quota.SlidingWindow},
	quota.Policy{Name: "api", Quota: 1_000_003, Window: 24 * h, Algorithm: quota.SlidingWindow},
	quota.Policy{Name: "api", Quota: 53, Window: h, Algorithm: quota.SlidingLog},
)

var properties = []test{
	{name: "a caller is admitted after RetryAfter, and not 1 µs earlier", run: func(r *run) {
		random := rand.New(rand.NewPCG(1, 2))
		for _, p := range odd {
			limit := r.compile(p)
			c := quota.Charge{Key: "key", Limit: limit}
			for tries, denials := 0, 0; denials < 20; tries++ {
				if tries == 10_000 {
					r.t.Fatalf("%s: denied only %d times of %d", limit.Name(), denials, tries)
				}
				r.move(time.Duration(random.Int64N(int64(limit.Tick()/µs)*3+1)) * µs)
				c.N = 1 + random.Int64N(atOnce(limit))
				d := r.take(c)[0]
				if d.Allowed {
					continue
				}
				denials++
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
	{name: "one more unit fits after NextAfter, and all after ResetAfter", run: func(r *run) {
		random := rand.New(rand.NewPCG(3, 4))
		for _, p := range odd {
			limit := r.compile(p)
			for range 10 {
				c := quota.Charge{Key: "key", Limit: limit, N: 1 + random.Int64N(atOnce(limit))}
				d := r.take(c)[0]
				for _, change := range []struct {
					after     time.Duration
					remaining int64
				}{{d.NextAfter, d.Remaining}, {d.ResetAfter - d.NextAfter, atOnce(limit) - 1}} {
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
				if d := r.probe(c); d.Remaining != atOnce(limit) || d.ResetAfter != 0 {
					r.t.Fatalf("%s: not whole: %+v", limit.Name(), d)
				}
				r.take(c)
			}
		}
	}},
	{name: "a busy hour admits the burst and the rate, and no unit more", run: func(r *run) {
		r.align(h)
		for _, test := range []struct {
			policy quota.Policy
			most   int64
		}{
			{quota.PerMinute(7), 7 + 7*60},
			{leaky(7, 3, m), 1 + 3 + 7*60},
			{fixedWindow(7, m), 7 * 61}, // the last as the hour ends
			{slidingLog(7, m), 7 * 61},
			{slidingWindow(1, m), 31}, // every other minute, because one unit counts until the next window ends
		} {
			c := r.charge("key", 1, test.policy)
			var taken int64
			end := r.now().Add(h)
			for taken <= test.most {
				d := r.take(c)[0]
				wait := max(µs, d.RetryAfter)
				if d.Allowed {
					taken, wait = taken+1, 0
				}
				if r.now().Add(wait).After(end) {
					break
				}
				r.move(wait)
			}
			if taken != test.most {
				r.t.Errorf("%s: %d taken, not %d", c.Limit.Name(), taken, test.most)
			}
			r.align(h)
			r.move(h)
		}
	}},
	{name: "random timelines agree with the model", run: func(r *run) {
		for seed := range uint64(2) {
			r.compareRandomly(
				fmt.Sprint(seed),
				walk{random: rand.New(rand.NewPCG(seed, 5)), limits: r.limits(odd), most: 1 << 40},
			)
			r.move(365 * 24 * h)
		}
	}},
	{name: "random timelines agree with the model when the clock is set back", back: true, run: func(r *run) {
		// Not for long: a Store may have forgotten what owed nothing by then.
		r.compareRandomly(
			"back",
			walk{random: rand.New(rand.NewPCG(6, 7)), limits: r.limits(odd), most: 1 << 30, back: 5 * s},
		)
	}},
	{name: "random timelines agree with the model when numbers change", run: func(r *run) {
		// Not for long: a Store may have forgotten what owed nothing by other numbers.
		for seed := range uint64(2) {
			r.compareRandomly(
				fmt.Sprint(seed),
				walk{random: rand.New(rand.NewPCG(seed, 8)), limits: r.limits(versions), most: 1 << 13},
			)
		}
	}},
	{name: "random timelines agree with the model when the algorithm changes", run: func(r *run) {
		for seed := range uint64(3) {
			r.align(h)
			r.compareRandomly(
				fmt.Sprint(seed),
				walk{random: rand.New(rand.NewPCG(seed, 9)), limits: r.limits(ways), most: 1 << 13},
			)
		}
	}},
}

func (r *run) limits(policies []quota.Policy) (limits []*quota.Limit) {
	r.t.Helper()
	for _, p := range policies {
		limits = append(limits, r.compile(p))
	}
	return limits
}
