package quota_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

func fixed(n int64, window time.Duration) quota.Policy {
	return quota.Policy{Name: "fixed", Quota: n, Window: window, Algorithm: quota.FixedWindow}
}

func TestFixedWindowTimeline(t *testing.T) {
	newCount(t, fixed(5, m)).follow([]moment{
		{20 * s, 2, true, 3, 0, 40 * s, 40 * s, 0},
		{10 * s, 3, true, 0, 0, 30 * s, 30 * s, 0},
		{0, 1, false, 0, 30 * s, 30 * s, 30 * s, 0},
		{30*s - µs, 1, false, 0, µs, µs, µs, 0},
		{µs, 4, true, 1, 0, m, m, 0},
		{m - µs, 2, false, 1, µs, µs, µs, 0},
		{0, 1, true, 0, 0, µs, µs, 0},
		{µs, 5, true, 0, 0, m, m, 0},
		{m, 6, false, 5, 0, 0, 0, 0}, // never
	})
}

func TestWindowsAreAlignedToTheEpoch(t *testing.T) {
	at := time.Unix(1_709_136_060, 0).UnixMicro()
	for window, id := range map[time.Duration]int64{s: 1_709_136_060, m: 28_485_601, h: 474_760, 24 * h: 19_781} {
		l := compile(t, fixed(1, window))
		starts := l.Starts(at)
		for i, start := range starts {
			assert.Equal(t, (id+int64(i)-1)*window.Microseconds(), start)
		}
		b, _ := l.Try(l.Drain(quota.Bucket{}, at), 1, at)
		assert.Equal(t, quota.Bucket{Time: starts[1], Level: 1, Unit: 1}, b)
	}
	odd := compile(t, fixed(1, 1234*ms))
	assert.Equal(t, [4]int64{-2_468_000, -1_234_000, 0, 1_234_000}, odd.Starts(-1), "before 1970 too")
}

// Quota in one microsecond, and Quota in the next; but a window admits no more.
func TestFixedWindowAdmitsAtMostTwiceTheQuota(t *testing.T) {
	got := newCount(t, fixed(60, m)).greedy(m-µs, m)
	assert.EqualValues(t, 120, got.most(2*µs))
	got = newCount(t, fixed(60, m)).greedy(every(s/2, 10*m)...)
	assert.EqualValues(t, 60, got.most(m), "busy from the start")
	got = newCount(t, fixed(60, m)).greedy(every(7*s, 30*m)...)
	assert.LessOrEqual(t, got.most(m), int64(120))
}

func TestFixedWindowReservesInTheNextWindows(t *testing.T) {
	c := newCount(t, fixed(2, m))
	c.wait(50 * s)
	for i, want := range []time.Duration{0, 0, 10 * s, 10 * s, 70 * s} {
		wait, ok := c.reserve(1, 70*s)
		assert.Equal(t, want, wait, i)
		assert.True(t, ok, i)
	}
	wait, ok := c.reserve(2, 130*s-µs)
	assert.Equal(t, 130*s, wait)
	assert.False(t, ok)
	assert.Equal(t, quota.Decision{Limit: 2, NextAfter: 70 * s, ResetAfter: 130 * s}, c.describe())
	c.follow([]moment{
		{10 * s, 1, false, 0, m, m, 2 * m, 0}, // a later caller comes after the reservations
		{m - µs, 1, false, 0, µs, µs, m + µs, 0},
		{µs, 1, true, 0, 0, m, m, 0},
	})
}

func TestARefundOfAFutureWindowKeepsTheWindow(t *testing.T) {
	c := newCount(t, fixed(2, m))
	c.reserve(2, 0)
	wait, ok := c.reserve(2, m)
	assert.Equal(t, m, wait)
	assert.True(t, ok)
	c.settle(-2, -m) // refunds the reservation for then
	assert.Equal(
		t, quota.Decision{Limit: 2, NextAfter: m, ResetAfter: m}, c.describe(),
		"this window is full all the same",
	)
	assert.Equal(t, noon.Add(m).UnixMicro(), c.limit.Whole(c.bucket))
	c.wait(m)
	assert.Equal(t, quota.Decision{Limit: 2, Remaining: 2}, c.describe())
}

func TestFixedWindowReservesAtMostADayAhead(t *testing.T) {
	c := newCount(t, fixed(1, 24*h))
	c.reserve(1, 0)
	wait, ok := c.reserve(1, 100*h)
	assert.Equal(t, 12*h, wait)
	assert.True(t, ok)
	wait, ok = c.reserve(1, 100*h)
	assert.Equal(t, 36*h, wait)
	assert.False(t, ok)
}

func TestFixedWindowRefundsOnlyWhatItCounts(t *testing.T) {
	c := newCount(t, fixed(5, m))
	c.take(3)
	c.wait(m)
	c.take(4)
	c.settle(-3, m)
	assert.EqualValues(t, 1, c.describe().Remaining, "the previous window is gone")
	c.settle(-3, 0)
	assert.EqualValues(t, 4, c.describe().Remaining)
	c.settle(-3, -m)
	assert.EqualValues(t, 4, c.describe().Remaining, "a future window has no charges")
	c.settle(-3, 0)
	assert.EqualValues(t, 5, c.describe().Remaining, "never more than the Quota")
	c.settle(-1<<63, 0)
	assert.EqualValues(t, 5, c.describe().Remaining)
}

func TestFixedWindowForgetsADebtWithItsWindow(t *testing.T) {
	c := newCount(t, fixed(5, m))
	c.settle(1<<63-1, 0)
	c.settle(1<<63-1, 0)
	assert.Equal(t, quota.Decision{Limit: 5, NextAfter: m, ResetAfter: m}, c.describe())
	assert.Equal(t, m, c.take(1).RetryAfter)
	c.wait(m)
	assert.EqualValues(t, 5, c.describe().Remaining)
}
