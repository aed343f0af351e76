package quota_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoliciesAreNamedAfterTheirNumbers(t *testing.T) {
	for want, p := range map[string]quota.Policy{
		"60/1m":          quota.PerMinute(60),
		"10/1s":          quota.PerSecond(10),
		"5000/1h":        quota.PerHour(5000),
		"7/1d":           quota.PerDay(7),
		"100/2h":         {Quota: 100, Window: 2 * time.Hour},
		"1/90s":          {Quota: 1, Window: 90 * time.Second},
		"1/1500ms":       {Quota: 1, Window: 1500 * time.Millisecond},
		"1/7us":          {Quota: 1, Window: 7 * time.Microsecond},
		"1/1001ns":       {Quota: 1, Window: 1001},
		"10/1s burst 13": {Quota: 10, Window: time.Second, Burst: 13},
		" ~":             {Name: " ~", Quota: 1, Window: time.Second},
		"api":            {Name: "api", Quota: 10, Window: time.Second, Burst: 3},

		"10/1s leaky":            {Quota: 10, Window: time.Second, Algorithm: quota.LeakyBucket},
		"10/1s burst 3 leaky":    {Quota: 10, Window: time.Second, Burst: 3, Algorithm: quota.LeakyBucket},
		"10/1h fixed":            {Quota: 10, Window: time.Hour, Algorithm: quota.FixedWindow},
		"10/1h sliding":          {Quota: 10, Window: time.Hour, Algorithm: quota.SlidingWindow},
		"10/1h log":              {Quota: 10, Window: time.Hour, Algorithm: quota.SlidingLog},
		"10/day":                 calendar(10, quota.Day, nil),
		"10/week":                calendar(10, quota.Week, time.UTC),
		"10/month Europe/Berlin": calendar(10, quota.Month, zone(t, "Europe/Berlin")),
	} {
		assert.Equal(t, want, compile(t, p).Name())
	}
}

func TestCompileFillsInTheDefaults(t *testing.T) {
	want := quota.Policy{Name: "60/1m", Quota: 60, Window: time.Minute, Burst: 60, Algorithm: quota.TokenBucket}
	assert.Equal(t, want, compile(t, quota.PerMinute(60)).Policy())
	want = quota.Policy{
		Name: "5/day", Quota: 5, Burst: 5, Algorithm: quota.FixedWindow, Calendar: quota.Day,
		Location: time.UTC,
	}
	assert.Equal(t, want, compile(t, calendar(5, quota.Day, nil)).Policy())
}

func TestCompileNamesEveryInvalidField(t *testing.T) {
	_, err := quota.Policy{Name: "café", Quota: -1, Window: -time.Second, Burst: -2, Algorithm: 7}.Compile()
	require.Error(t, err)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	var fields []string
	for _, fault := range joined.Unwrap() {
		var p *quota.PolicyError
		require.ErrorAs(t, fault, &p)
		assert.Equal(t, "café", p.Policy)
		fields = append(fields, p.Field)
	}
	assert.Equal(t, []string{"Name", "Quota", "Window", "Burst", "Algorithm"}, fields)
	assert.Equal(t, strings.Join([]string{
		`quota: policy "café": Name must be printable ASCII`,
		`quota: policy "café": Quota is -1: must be at least 1`,
		`quota: policy "café": Window is -1s: must be more than 0`,
		`quota: policy "café": Burst is -2: must not be negative`,
		`quota: policy "café": Algorithm is 7: unknown`,
	}, "\n"), err.Error())
}

func TestCompileRejectsEachInvalidField(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		field  string
		policy quota.Policy
	}{
		{"Quota", quota.Policy{}},
		{"Quota", quota.Policy{Window: time.Second}},
		{"Quota", quota.Policy{Quota: math.MinInt64, Window: time.Second}},
		{"Quota", quota.Policy{Quota: math.MaxInt64, Window: time.Second}},
		{"Quota", quota.Policy{Quota: 1 << 53, Window: time.Nanosecond}},
		{"Quota", quota.Policy{Quota: 1<<61 - 1, Window: day}},
		{"Quota", quota.Policy{Quota: 1, Window: day, Burst: math.MaxInt64}},
		{"Window", quota.Policy{Quota: 1}},
		{"Window", quota.Policy{Quota: 1, Window: math.MinInt64}},
		{"Burst", quota.Policy{Quota: 1, Window: time.Second, Burst: math.MinInt64}},
		{"Burst", quota.Policy{Quota: 1, Window: 200 * 365 * day}},
		{"Quota", quota.Policy{Quota: 1, Window: math.MaxInt64}}, // odd
		{"Burst", quota.Policy{Quota: 1, Window: 365 * day, Burst: 143}},
		{"Algorithm", quota.Policy{Quota: 1, Window: time.Second, Algorithm: -1}},
		{"Algorithm", quota.Policy{Quota: 1, Window: time.Second, Algorithm: quota.SlidingLog + 1}},
		{"Quota", quota.Policy{Quota: 1, Window: day, Burst: math.MaxInt64, Algorithm: quota.LeakyBucket}},
		{"Quota", quota.Policy{Quota: 1, Window: time.Microsecond, Burst: math.MaxInt64, Algorithm: quota.LeakyBucket}},
		{"Quota", quota.Policy{Quota: 1 << 53, Window: time.Second, Algorithm: quota.FixedWindow}},
		{"Quota", quota.Policy{Quota: 1 << 53, Calendar: quota.Day, Algorithm: quota.FixedWindow}},
		{"Quota", quota.Policy{Quota: 1 << 52, Window: 2 * time.Second, Algorithm: quota.SlidingWindow}},
		// no tick divides the window
		{"Quota", quota.Policy{Quota: 200_000, Window: day + time.Microsecond, Algorithm: quota.SlidingWindow}},
		{"Quota", quota.Policy{Quota: 1001, Window: time.Second, Algorithm: quota.SlidingLog}},
		{"Window", quota.Policy{Quota: 1, Algorithm: quota.FixedWindow}},
		{"Window", quota.Policy{Quota: 1, Window: 1500, Algorithm: quota.FixedWindow}},
		{"Window", quota.Policy{Quota: 1, Window: 1500, Algorithm: quota.SlidingWindow}},
		{"Window", quota.Policy{Quota: 1, Window: 1500, Algorithm: quota.SlidingLog}},
		{"Window", quota.Policy{Quota: 1, Window: 1 << 51 * time.Microsecond / 1000 * 1001, Algorithm: quota.FixedWindow}},
		{"Window", quota.Policy{Quota: 1, Window: time.Hour, Algorithm: quota.FixedWindow, Calendar: quota.Day}},
		{"Burst", quota.Policy{Quota: 2, Window: time.Second, Burst: 1, Algorithm: quota.FixedWindow}},
		{"Burst", quota.Policy{Quota: 2, Window: time.Second, Burst: 3, Algorithm: quota.SlidingWindow}},
		{"Burst", quota.Policy{Quota: 2, Window: time.Second, Burst: 1, Algorithm: quota.SlidingLog}},
		{"Calendar", quota.Policy{Quota: 1, Calendar: quota.Day}},
		{"Calendar", quota.Policy{Quota: 1, Calendar: quota.Month + 1, Algorithm: quota.FixedWindow}},
		{"Calendar", quota.Policy{Quota: 1, Calendar: -1, Algorithm: quota.FixedWindow}},
		{"Location", quota.Policy{Quota: 1, Window: time.Second, Location: time.UTC, Algorithm: quota.FixedWindow}},
		{"Name", calendar(1, quota.Day, time.FixedZone("Mitteleuropäische Zeit", 3600))},
		{"Name", quota.Policy{Name: "a\tb", Quota: 1, Window: time.Second}},
		{"Name", quota.Policy{Name: "a\x7f", Quota: 1, Window: time.Second}},
	} {
		_, err := test.policy.Compile()
		var fault *quota.PolicyError
		if assert.True(t, errors.As(err, &fault), "%+v", test.policy) {
			assert.Equal(t, test.field, fault.Field, "%+v: %v", test.policy, err)
		}
	}
}

func TestTheLargestNumbersCompile(t *testing.T) {
	for _, p := range []quota.Policy{
		{Quota: 1<<53 - 1, Window: time.Second, Algorithm: quota.FixedWindow},
		{Quota: 1, Window: 1 << 51 * time.Microsecond, Algorithm: quota.FixedWindow},
		{Quota: 1, Window: 1 << 51 * time.Microsecond, Algorithm: quota.SlidingWindow},
		{Quota: 1000, Window: 1 << 51 * time.Microsecond, Algorithm: quota.SlidingLog},
		{Quota: 1, Window: 365 * 24 * time.Hour, Burst: 142},
		{Quota: 1, Window: 365 * 24 * time.Hour, Burst: 141, Algorithm: quota.LeakyBucket},
	} {
		l := compile(t, p)
		assert.LessOrEqual(t, l.Capacity(), l.Most(), l.Name())
		assert.Less(t, l.Most(), int64(1)<<53, l.Name())
	}
}

func TestWindowsAndLogsCountInWholeUnits(t *testing.T) {
	for _, test := range []struct {
		policy quota.Policy
		tick   time.Duration
		most   int64
	}{
		{fixed(7, 1234*ms), µs, 1<<53 - 1},
		{calendar(7, quota.Day, nil), µs, 1<<53 - 1},
		{logged(7, 1234*ms), µs, 1<<16 - 1},
		{sliding(7, s), µs, (1<<53 - 1) / 1_000_000},
		{sliding((1<<53-1)/1_000_000, s), µs, (1<<53 - 1) / 1_000_000},
		{sliding((1<<53-1)/1_000_000+1, s), 10 * µs, (1<<53 - 1) / 100_000},
		{sliding((1<<53-1)/2, 2*s), s, (1<<53 - 1) / 2},
	} {
		l := compile(t, test.policy)
		assert.Equal(t, test.tick, l.Tick(), l.Name())
		assert.Equal(
			t, []int64{1, 0, test.policy.Quota, test.policy.Quota, test.most},
			[]int64{l.Unit(), l.Rate(), l.AtOnce(), l.Capacity(), l.Most()}, l.Name(),
		)
	}
}

func TestAnIDIsRememberedForAWindow(t *testing.T) {
	assert.EqualValues(t, 1_000_060_000_000, compile(t, quota.PerMinute(1)).Remembers(1_000_000_000_000))
	assert.EqualValues(t, 8, compile(t, quota.Policy{Quota: 1, Window: 3}).Remembers(7), "at least 1 µs")
}

func TestTheTickIsTheFinestExactOne(t *testing.T) {
	for _, test := range []struct {
		policy     quota.Policy
		tick       time.Duration
		rate, unit int64
	}{
		{quota.PerMinute(60), time.Microsecond, 1, 1_000_000},
		{quota.PerSecond(3), time.Microsecond, 3, 1_000_000},
		{quota.PerSecond(5_000_000), time.Microsecond, 5, 1},
		{quota.PerDay(99_991), time.Microsecond, 99_991, 86_400_000_000},
		{quota.PerDay(100_003), time.Microsecond, 100_003, 86_400_000_000},
		{quota.PerDay(1_000_003), 10 * time.Microsecond, 1_000_003, 8_640_000_000},
		{quota.PerDay(100_000_007), time.Millisecond, 100_000_007, 86_400_000},
		{quota.PerDay(99_999_999_999_991), 1000 * time.Millisecond, 99_999_999_999_991, 86_400},
		{quota.Policy{Quota: 1, Window: 1}, time.Microsecond, 1000, 1},
		{quota.Policy{Quota: 2, Window: 3}, time.Microsecond, 2000, 3},
	} {
		if test.policy.Quota > 1e13 {
			test.policy.Burst = 1e11
		}
		l := compile(t, test.policy)
		assert.Equal(t, test.tick, l.Tick(), l.Name())
		assert.Equal(t, test.rate, l.Rate(), l.Name())
		assert.Equal(t, test.unit, l.Unit(), l.Name())
		assert.Equal(t, l.Policy().Burst*l.Unit(), l.Capacity(), l.Name())
		assert.LessOrEqual(t, l.Capacity(), l.Most(), l.Name())
		assert.Less(t, l.Most(), int64(1)<<53, l.Name())
	}
}

// Whatever compiles is exact: the rate is Quota/Window, no number reaches 2^53, and every
// Decision is within its bounds.
func FuzzCompile(f *testing.F) {
	f.Add(int64(60), int64(time.Minute), int64(0), int64(1), int64(30), int64(0))
	f.Add(int64(99_991), int64(24*time.Hour), int64(5), int64(7), int64(1<<52), int64(1<<50))
	f.Add(int64(1000), int64(time.Second), int64(0), int64(1), int64(1)<<53-1, int64(1000))
	f.Add(int64(1)<<52, int64(1), int64(1)<<52, int64(1)<<60, int64(-1), int64(-1))
	f.Fuzz(func(t *testing.T, n, window, burst, cost, level, unit int64) {
		l, err := quota.Policy{Quota: n, Window: time.Duration(window), Burst: burst}.Compile()
		if err != nil {
			require.ErrorAs(t, err, new(*quota.PolicyError))
			return
		}
		assert.Zero(t, ratio(l.Rate(), l.Unit()).Cmp(ratio(n, window).Mul(ratio(n, window), ratio(int64(l.Tick()), 1))))
		for _, number := range []int64{l.Rate(), l.Unit(), l.Capacity(), l.Most()} {
			assert.True(t, 0 < number && number < 1<<53)
		}

		const now = 1_800_000_000_000_000
		b := l.Drain(quota.Bucket{Time: now - 5, Level: level, Unit: unit}, now)
		after := l.Settle(b, cost, 0, now)
		for _, b := range []quota.Bucket{b, after} {
			assert.True(t, 0 <= b.Level && b.Level <= l.Most(), "%+v", b)
			d := l.Describe(b, now)
			assert.True(t, 0 <= d.Remaining && d.Remaining <= l.Policy().Burst, "%+v", d)
			assert.True(t, 0 <= d.NextAfter && d.NextAfter <= d.ResetAfter, "%+v", d)
			assert.Equal(t, b.Level == 0, d.ResetAfter == 0)
		}
		if cost > 0 {
			wait := l.Wait(b, cost, now)
			assert.Equal(t, cost > l.Policy().Burst, wait == quota.Forever)
			if wait > 0 && wait < quota.Forever {
				assert.Zero(t, l.Wait(l.Drain(b, now+wait.Microseconds()), cost, now+wait.Microseconds()))
				assert.NotZero(t, l.Wait(l.Drain(b, now+wait.Microseconds()-1), cost, now+wait.Microseconds()-1))
			}
		}
	})
}
