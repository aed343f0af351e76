package quota_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ways returns a policy of each algorithm, all with one name and the same numbers.
func ways(n int64, window time.Duration) (policies []quota.Policy) {
	for a := quota.TokenBucket; a <= quota.SlidingLog; a++ {
		policies = append(policies, quota.Policy{Name: "api", Quota: n, Window: window, Algorithm: a})
	}
	return policies
}

// each runs a test for any two of the algorithms.
func each(t *testing.T, n int64, window time.Duration, test func(t *testing.T, old, new quota.Policy)) {
	for _, old := range ways(20, m) {
		for _, new := range ways(n, window) {
			t.Run(fmt.Sprintf("%v to %v", old.Algorithm, new.Algorithm), func(t *testing.T) { test(t, old, new) })
		}
	}
}

func TestAnotherAlgorithmReadsTheUnitsOwed(t *testing.T) {
	each(t, 31, m, func(t *testing.T, old, new quota.Policy) {
		c := newCount(t, old)
		c.take(5)
		c.take(2)
		c.under(new)
		atOnce := c.limit.AtOnce()
		assert.Equal(t, atOnce-7, c.describe().Remaining)
		c.take(1) // written by the new policy
		assert.Equal(t, atOnce-8, c.describe().Remaining)
		c.under(old)
		assert.Equal(t, c.limit.AtOnce()-8, c.describe().Remaining)
	})
}

func TestAnotherAlgorithmReadsADebt(t *testing.T) {
	each(t, 20, m, func(t *testing.T, old, new quota.Policy) {
		c := newCount(t, old)
		c.settle(100, 0)
		c.under(new)
		assert.Zero(t, c.describe().Remaining)
		c.settle(-80, 0)
		assert.Equal(t, c.limit.AtOnce()-20, c.describe().Remaining)
	})
}

func TestPartlyOwedUnitsAreReadAsWholeUnits(t *testing.T) {
	for _, new := range ways(20, m) {
		c := newCount(t, quota.Policy{Name: "api", Quota: 3, Window: m})
		c.take(2)
		c.wait(µs)
		c.under(new)
		part := 0
		if new.Algorithm.String() == "TokenBucket" || new.Algorithm.String() == "LeakyBucket" {
			part = 1 // what has come back in 1 µs counts
		}
		assert.Equal(t, c.limit.AtOnce()-2, c.describe().Remaining, new.Algorithm)
		assert.Equal(t, part == 1, c.limit.Unit() > 1)
		assert.Equal(t, c.limit.Unit() > 1, c.limit.Drain(c.bucket, c.now).Level < 2*c.limit.Unit())
	}
}

// The counts of two windows are owed under another policy, too, as far as they may have
// been charged in its window.
func TestThePreviousWindowIsReadToo(t *testing.T) {
	for _, test := range []struct {
		new  quota.Policy
		owed int64
	}{
		{ways(50, m)[quota.TokenBucket], 13},
		{ways(50, m)[quota.LeakyBucket], 13},
		{ways(50, m)[quota.FixedWindow], 6},    // the previous window is over
		{ways(50, m)[quota.SlidingWindow], 13}, // and does not count here
		{ways(50, m)[quota.SlidingLog], 13},
		{ways(50, h)[quota.FixedWindow], 13},   // contains both windows
		{ways(50, h)[quota.SlidingWindow], 13}, // as here
		{ways(50, s)[quota.SlidingWindow], 13}, // one window each, as far as is known
	} {
		c := newCount(t, ways(20, m)[quota.SlidingWindow])
		c.wait(m)
		c.take(7)
		c.wait(m)
		c.take(6)
		c.under(test.new)
		assert.Equal(
			t, c.limit.AtOnce()-test.owed, c.describe().Remaining, "%v in %v", test.new.Algorithm,
			test.new.Window,
		)
	}
}

// A reservation in a future window is owed then, and until then.
func TestAReservedFutureWindowIsReadToo(t *testing.T) {
	for _, new := range ways(20, m) {
		c := newCount(t, ways(20, m)[quota.FixedWindow])
		c.take(20)
		c.reserve(5, m)
		c.under(new)
		c.wait(m)
		assert.Equal(t, c.limit.AtOnce()-5, c.describe().Remaining, new.Algorithm)
	}
}

func TestAnInvalidStateOwesNothing(t *testing.T) {
	day := 24 * time.Hour.Microseconds()
	now := noon.UnixMicro()
	for name, b := range map[string]quota.Bucket{
		"zero":               {},
		"no unit":            {Time: now, Level: 5},
		"a negative unit":    {Time: now, Level: 5, Unit: -1},
		"a negative level":   {Time: now, Level: -5, Unit: 1},
		"a negative window":  {Time: now, Level: 5, Unit: 1, Prev: -1},
		"more than a day on": {Time: now + day + 1, Level: 5, Unit: 1, Ahead: day + 1},
		"a negative time on": {Time: now, Level: 5, Unit: 1, Ahead: -1},
		"long ago":           {Time: -now, Level: 5, Unit: 1},
		"before time":        {Time: -1 << 63, Level: 5, Unit: 1, Prev: 5},
	} {
		for _, p := range ways(20, m) {
			l := compile(t, p)
			got := l.Drain(b, now)
			assert.Equal(t, l.AtOnce(), l.Describe(got, now).Remaining, "%s, %v", name, p.Algorithm)
			assert.LessOrEqual(t, l.Whole(got), now, "%s, %v", name, p.Algorithm)
		}
	}
	for _, p := range ways(20, m) {
		l := compile(t, p)
		assert.Equal(t, l.AtOnce()-5, l.Describe(l.Drain(quota.Bucket{Time: now, Level: 5, Unit: 1}, now), now).Remaining)
		ahead := l.Drain(quota.Bucket{Time: now + day, Level: 5, Unit: 1, Ahead: day}, now)
		if p.Algorithm <= quota.LeakyBucket {
			assert.Equal(
				t, quota.Bucket{Time: now, Level: 5 * l.Unit(), Unit: l.Unit()}, ahead,
				"what was owed then is owed now",
			)
		} else {
			assert.Greater(t, l.Whole(ahead), now+day, "a day ahead is believed, %v", p.Algorithm)
		}
	}
	entry := func(at, units int64) string {
		var b [10]byte
		binary.BigEndian.PutUint64(b[:], uint64(at)<<8)
		binary.BigEndian.PutUint16(b[7:], uint16(units))
		return string(b[:9])
	}
	l := compile(t, ways(20, m)[quota.SlidingLog])
	for name, entries := range map[string]string{
		"a piece of an entry":   entry(now, 3)[:8],
		"an entry and a piece":  entry(now, 3) + "x",
		"entries that go back":  entry(now, 1) + entry(now-1, 1),
		"an entry of nothing":   entry(now-1, 0) + entry(now, 1),
		"more than a log holds": entry(now-1, 40_000) + entry(now, 30_000),
	} {
		got := l.Drain(quota.Bucket{Time: now, Level: 3, Unit: 1, Log: entries}, now)
		assert.Equal(t, quota.Bucket{Time: now, Unit: 1}, got, name)
	}
	good := entry(now-m.Microseconds()+1, 2) + entry(now-1, 40_000) + entry(now, 25_533)
	got := l.Drain(quota.Bucket{Time: now, Level: 3, Unit: 1, Log: entry(now-m.Microseconds(), 9) + good}, now)
	assert.Equal(t, quota.Bucket{Time: now, Level: 65_535, Unit: 1, Log: good}, got)
}

func TestPartsOfAnyUnitAreRead(t *testing.T) {
	now := noon.UnixMicro()
	window := compile(t, ways(20, m)[quota.FixedWindow])
	for _, test := range []struct{ level, unit, units int64 }{
		{5, 1, 5}, {5, 2, 3}, {6, 2, 3}, {5, 5, 1}, {5, 6, 1}, {1<<53 - 1, 1, 1<<53 - 1},
		{1<<53 - 1, 1<<53 - 1, 1}, {1<<63 - 1, 1, 1<<53 - 1},
	} {
		got := window.Drain(quota.Bucket{Time: now, Level: test.level, Unit: test.unit}, now)
		assert.Equal(t, test.units, got.Level, "%d of 1/%d", test.level, test.unit)
	}
	bucket := compile(t, quota.Policy{Quota: 1, Window: 1 << 41 * µs})
	require.EqualValues(t, 1<<41, bucket.Unit())
	for _, test := range []struct{ level, unit, parts int64 }{
		{3, 1 << 42, 1 << 41}, {1, 1 << 60, 1 << 41}, {1 << 52, 1 << 41, 1 << 52}, {1 << 52, 1 << 30, bucket.Most()},
		{1 << 52, 1 << 29, bucket.Most()}, {1 << 62, 1, bucket.Most()}, {3 << 41, 1 << 41, 3 << 41}, {5, 2, 3 << 41},
	} {
		got := bucket.Drain(quota.Bucket{Time: now, Level: test.level, Unit: test.unit}, now)
		assert.Equal(t, min(test.parts, bucket.Most()), got.Level, "%d of 1/%d", test.level, test.unit)
	}
}

// A bucket that counts in whole units reads the counts of other algorithms.
func TestABucketOfWholeUnitsReadsWindowsAndLogs(t *testing.T) {
	bucket := compile(t, quota.Policy{Quota: 1_000_000, Window: s, Burst: 100})
	require.EqualValues(t, 1, bucket.Unit())
	now := noon.UnixMicro()
	want := quota.Bucket{Time: now, Level: 7, Unit: 1}
	assert.Equal(t, want, bucket.Drain(quota.Bucket{Time: now, Level: 7, Unit: 1}, now))
	assert.Equal(t, want, bucket.Drain(quota.Bucket{Time: now, Level: 4, Unit: 1, Prev: 3}, now))
	log := newCount(t, ways(20, m)[quota.SlidingLog])
	log.take(7)
	assert.Equal(t, want, bucket.Drain(log.bucket, now))
}

// A time between two ticks becomes the later one.
func TestATimeBetweenTicksIsRoundedUp(t *testing.T) {
	l := compile(t, quota.PerDay(1_000_003))
	require.Equal(t, 10*µs, l.Tick())
	now := noon.UnixMicro()
	for _, unit := range []int64{l.Unit(), 1} {
		b := quota.Bucket{Time: now + 13, Level: unit, Unit: unit}
		assert.Equal(t, quota.Bucket{Time: now + 20, Level: l.Unit(), Unit: l.Unit()}, l.Drain(b, now+15))
		assert.Equal(t, quota.Bucket{Time: now + 30, Level: l.Unit() - l.Rate(), Unit: l.Unit()}, l.Drain(b, now+39))
	}
}

// Any bytes can be read as a state, and lead to Decisions within their bounds.
func FuzzDrain(f *testing.F) {
	f.Add(int64(5), int64(3), int64(1), int64(2), "")
	f.Add(
		int64(0), int64(1)<<53-1, int64(1)<<52, int64(1)<<53,
		strings.Repeat("\x06\x49\xea\x2d\xcf\x50\x00\x00\x64", 3),
	)
	f.Add(int64(-1)<<63, int64(-1), int64(1)<<62, int64(7), "\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	var limits []*quota.Limit
	for _, p := range append(
		ways(20, m), append(ways(1000, 97*h), calendar(9, quota.Week, time.FixedZone("", 3600)))...,
	) {
		limits = append(limits, compile(f, p))
	}
	f.Fuzz(func(t *testing.T, at, level, unit, prev int64, log string) {
		now := noon.UnixMicro()
		for _, l := range limits {
			b := l.Drain(quota.Bucket{Time: now + at, Level: level, Unit: unit, Prev: prev, Log: log}, now)
			tried, _ := l.Try(b, 1, now)
			reserved, _, _ := l.TryWithin(b, 1, now, h)
			for _, b := range []quota.Bucket{b, tried, reserved, l.Settle(b, -3, now-5, now), l.Settle(b, 3, 0, now)} {
				b = l.Drain(b, now)
				d := l.Describe(b, now)
				assert.True(t, 0 <= b.Level && b.Level <= l.Most() && 0 <= b.Prev, "%+v", b)
				assert.True(t, 0 <= d.Remaining && d.Remaining <= l.AtOnce(), "%+v", d)
				assert.True(t, 0 <= d.NextAfter && d.NextAfter <= d.ResetAfter, "%+v", d)
				assert.Equal(t, b, l.Drain(b, now), "drained twice")
			}
		}
	})
}
