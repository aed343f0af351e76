package quotatest

import (
	"fmt"
	"slices"
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

// tests end with the random ones, which take the longest.
func tests() (all []test) {
	for _, tl := range timelines {
		back := slices.ContainsFunc(tl.moments, func(m moment) bool { return m.after < 0 })
		all = append(all, test{name: tl.name, back: back, run: tl.follow})
	}
	return append(append(append(all, promises...), contended...), walks()...)
}

// A timeline is calls with charges of one Key and one policy.
type timeline struct {
	name    string
	policy  quota.Policy
	align   time.Duration // the timeline begins with a multiple of it
	moments []moment
}

// A moment is one call with a charge of n units, some time after the previous one.
type moment struct {
	after time.Duration
	call  verb
	n     int64
	want  string // see answer
}

type verb int

const (
	take verb = iota
	settle
	reserve // within an hour
)

// follow makes the calls of tl, as far as the Store has the methods.
func (tl timeline) follow(r *run) {
	r.align(max(µs, tl.align))
	c := r.charge("key", 0, tl.policy)
	for i, moment := range tl.moments {
		r.move(moment.after)
		c.N = moment.n
		got, ok := r.answer(moment.call, c)
		if !ok {
			return
		}
		if got != moment.want {
			r.t.Fatalf("moment %d, %+v:\n got %s", i, moment, got)
		}
	}
}

// answer makes a call, and says what the Store answers:
//
//	Take     allowed, or why not; how many remain; RetryAfter, NextAfter, ResetAfter and Delay unless 0
//	Settle   what was cut
//	Reserve  how long to wait
func (r *run) answer(call verb, c quota.Charge) (text string, ok bool) {
	switch {
	case call == settle && r.settler != nil:
		if cut := r.settle(c); cut != nil {
			return fmt.Sprintf("%d of %d cut from %s, charge %d", cut.Cut, cut.Units, cut.Limit, cut.Index), true
		}
		return "", true
	case call == reserve && r.reserver != nil:
		wait, ok := r.reserve(h, c)
		return fmt.Sprint(wait, ok), true
	case call != take:
		return "", false
	}
	d := r.take(c)[0]
	if d.Limit != c.Limit.Policy().Quota || !d.At.Equal(r.now()) {
		r.t.Errorf("Limit %d, At %v at %v", d.Limit, d.At, r.now())
	}
	text = map[bool]string{true: "ok", false: "no"}[d.Allowed]
	if d.Never {
		text += " never"
	}
	text += fmt.Sprint(" ", d.Remaining)
	for _, after := range []struct {
		name string
		time.Duration
	}{{"retry", d.RetryAfter}, {"next", d.NextAfter}, {"reset", d.ResetAfter}, {"delay", d.Delay}} {
		if after.Duration != 0 {
			text += fmt.Sprint(", ", after.name, " ", after.Duration)
		}
	}
	return text, true
}

func by(a quota.Algorithm, n int64, window time.Duration) quota.Policy {
	return quota.Policy{Quota: n, Window: window, Algorithm: a}
}

func leaky(n, burst int64, window time.Duration) quota.Policy {
	return quota.Policy{Quota: n, Window: window, Burst: burst, Algorithm: quota.LeakyBucket}
}

var ist = time.FixedZone("IST", 5*3600+1800)

func calendar(n int64, c quota.Calendar, in *time.Location) quota.Policy {
	return quota.Policy{Quota: n, Algorithm: quota.FixedWindow, Calendar: c, Location: in}
}

// mixed are policies of all algorithms.
var mixed = []quota.Policy{
	{Quota: 20, Window: h},
	leaky(20, 30, h),
	by(quota.FixedWindow, 20, h),
	calendar(20, quota.Day, nil),
	calendar(20, quota.Month, nil),
	by(quota.SlidingWindow, 20, h),
	by(quota.SlidingLog, 20, h),
}

// timelines say what a model alone would not: that it is the right one.
var timelines = []timeline{
	{"a TokenBucket is full at first and refills continuously", quota.PerMinute(60), 0, []moment{
		{0, take, 1, "ok 59, next 1s, reset 1s"},
		{0, take, 0, "ok 58, next 1s, reset 2s"}, // 0 counts as 1
		{500 * ms, take, 1, "ok 57, next 500ms, reset 2.5s"},
		{2500 * ms, take, 61, "no never 60"},
	}},
	{"a TokenBucket is exact to the microsecond", quota.PerSecond(3), 0, []moment{
		{0, take, 3, "ok 0, next 333.334ms, reset 1s"},
		{333_333 * µs, take, 1, "no 0, retry 1µs, next 1µs, reset 666.667ms"},
		{µs, take, 1, "ok 0, next 333.333ms, reset 1s"},
		{333_332 * µs, take, 3, "no 0, retry 666.668ms, next 1µs, reset 666.668ms"},
		{0, take, 4, "no never 0, next 1µs, reset 666.668ms"},
		{µs, take, 1, "ok 0, next 333.333ms, reset 1s"},
	}},
	{"LeakyBucket admits one at once, delays others, and denies the next", leaky(10, 2, s), 0, []moment{
		{0, take, 1, "ok 2, next 100ms, reset 100ms"},
		{0, take, 1, "ok 1, next 100ms, reset 200ms, delay 100ms"},
		{0, take, 1, "ok 0, next 100ms, reset 300ms, delay 200ms"},
		{0, take, 1, "no 0, retry 100ms, next 100ms, reset 300ms"},
		{0, reserve, 1, "300ms true"}, // beyond Burst
		{350 * ms, take, 3, "no 2, retry 50ms, next 50ms, reset 50ms"},
		{0, take, 2, "ok 0, next 50ms, reset 250ms, delay 50ms"},
	}},
	{"FixedWindow starts at 0 in each window", by(quota.FixedWindow, 5, m), m, []moment{
		{20 * s, take, 5, "ok 0, next 40s, reset 40s"},
		{40*s - µs, take, 1, "no 0, retry 1µs, next 1µs, reset 1µs"},
		{µs, take, 5, "ok 0, next 1m0s, reset 1m0s"}, // twice the Quota in a microsecond
		{0, reserve, 3, "1m0s true"},
		{0, take, 1, "no 0, retry 1m0s, next 1m0s, reset 2m0s"},
		{m, take, 1, "ok 1, next 1m0s, reset 1m0s"},
	}},
	{"FixedWindow of a day follows its Location", calendar(3, quota.Day, ist), 24 * h, []moment{ // half past five there
		{0, take, 2, "ok 1, next 18h30m0s, reset 18h30m0s"},
		{18*h + 30*m - µs, take, 2, "no 1, retry 1µs, next 1µs, reset 1µs"},
		{µs, take, 3, "ok 0, next 24h0m0s, reset 24h0m0s"},
	}},
	{"SlidingWindow counts the previous window by its weight", by(quota.SlidingWindow, 10, m), m, []moment{
		{30 * s, take, 10, "ok 0, next 36s, reset 1m30s"},
		{0, take, 10, "no 0, retry 1m30s, next 36s, reset 1m30s"},
		{36*s - µs, take, 1, "no 0, retry 1µs, next 1µs, reset 54.000001s"},
		{µs, take, 1, "ok 0, next 6s, reset 1m54s"},
		{0, reserve, 1, "6s true"},
		{0, settle, -2, ""},
		{24 * s, take, 6, "no 5, retry 6s, next 6s, reset 30s"},
	}},
	{"SlidingLog admits as much as has expired", by(quota.SlidingLog, 5, m), 0, []moment{
		{20 * s, take, 2, "ok 3, next 1m0s, reset 1m0s"},
		{20 * s, take, 3, "ok 0, next 40s, reset 1m0s"},
		{0, take, 3, "no 0, retry 1m0s, next 40s, reset 1m0s"},
		{40*s - µs, take, 1, "no 0, retry 1µs, next 1µs, reset 20.000001s"},
		{µs, take, 1, "ok 1, next 20s, reset 1m0s"},
		{0, reserve, 3, "20s true"},
		{0, settle, -1, ""}, // of the latest
		{0, take, 1, "no 0, retry 20s, next 20s, reset 1m20s"},
	}},
	{"a clock that is set back gives nothing, and delays nothing", quota.PerMinute(60), 0, []moment{
		{0, take, 1, "ok 59, next 1s, reset 1s"},
		{-h, take, 1, "ok 58, next 1s, reset 2s"},
		{0, take, 58, "ok 0, next 1s, reset 1m0s"},
		{-m, take, 1, "no 0, retry 1s, next 1s, reset 1m0s"},
		{m + s - µs, take, 1, "no 0, retry 1µs, next 1µs, reset 59.000001s"},
	}},
	{"Settle charges into debt, up to ten windows, and says what it cut", quota.PerSecond(1000), 0, []moment{
		{0, settle, 10_999, ""},
		{0, settle, 3, "2 of 3 cut from 1000/1s, charge 0"},
		{0, settle, 1<<63 - 1, "9223372036854775807 of 9223372036854775807 cut from 1000/1s, charge 0"},
		{0, take, 1, "no 0, retry 10.001s, next 10.001s, reset 11s"},
		{10*s + ms, settle, -1, ""},
		{0, take, 2, "ok 0, next 1ms, reset 1s"},
		{0, settle, -1 << 63, ""}, // at most what is owed
		{0, take, 1000, "ok 0, next 1ms, reset 1s"},
	}},
	{"Reserve waits its turn, for an hour at most", quota.Policy{Quota: 4, Window: h, Burst: 2}, 0, []moment{
		{0, reserve, 3, fmt.Sprint(quota.Forever, false)},
		{0, reserve, 2, "0s true"},
		{0, reserve, 2, "30m0s true"},
		{0, reserve, 2, "1h0m0s true"},
		{0, reserve, 1, "1h15m0s false"},
		{0, take, 1, "no 0, retry 1h15m0s, next 1h15m0s, reset 1h30m0s"},
		{0, settle, -2, ""},
		{0, reserve, 1, "45m0s true"},
	}},
}
