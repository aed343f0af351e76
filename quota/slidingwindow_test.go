package quota_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

func sliding(n int64, window time.Duration) quota.Policy {
	return quota.Policy{Name: "sliding", Quota: n, Window: window, Algorithm: quota.SlidingWindow}
}

func TestSlidingWindowTimeline(t *testing.T) {
	newCount(t, sliding(10, m)).follow([]moment{
		{30 * s, 10, true, 0, 0, 36 * s, 90 * s, 0}, // one fits when a tenth of the next window is over
		{0, 1, false, 0, 36 * s, 36 * s, 90 * s, 0},
		{0, 10, false, 0, 90 * s, 36 * s, 90 * s, 0},
		{30 * s, 1, false, 0, 6 * s, 6 * s, 60 * s, 0},
		{6*s - µs, 1, false, 0, µs, µs, 54*s + µs, 0},
		{µs, 1, true, 0, 0, 6 * s, 114 * s, 0},
		{24 * s, 5, false, 4, 6 * s, 6 * s, 90 * s, 0}, // 5 of the previous window, 1 of this one
		{0, 4, true, 0, 0, 6 * s, 90 * s, 0},
		{30*s - µs, 5, false, 4, µs, µs, 60*s + µs, 0},
		{µs, 5, true, 0, 0, 12 * s, 120 * s, 0}, // 5 of the previous window, which come back every 12 s
		{108*s - µs, 10, false, 8, 12*s + µs, µs, 12*s + µs, 0},
		{12 * s, 10, false, 9, µs, µs, µs, 0},
		{µs, 10, true, 0, 0, 66 * s, 120 * s, 0},
		{h, 11, false, 10, 0, 0, 0, 0}, // never
	})
}

func TestThePreviousWindowCountsByItsWeight(t *testing.T) {
	c := newCount(t, sliding(10, m))
	c.take(10)
	c.wait(m + 600*ms) // a hundredth of the window
	d := c.take(1)
	assert.False(t, d.Allowed, "9.9 + 1 exceed 10")
	assert.Equal(t, 5400*ms, d.RetryAfter)
}

// Everything in one window at its very end, and in the next one as its weight falls.
func TestSlidingWindowAdmitsLessThanTwiceTheQuota(t *testing.T) {
	got := newCount(t, sliding(10, m)).greedy(append([]time.Duration{m - µs}, from(m, every(s/2, 3*m))...)...)
	assert.EqualValues(t, 19, got.most(m))
	assert.EqualValues(t, 20, got.most(m+2*µs))
	got = newCount(t, sliding(10, m)).greedy(every(s/2, 20*m)...)
	assert.LessOrEqual(t, got.most(m), int64(19))
}

func from(offset time.Duration, moments []time.Duration) []time.Duration {
	for i := range moments {
		moments[i] += offset
	}
	return moments
}

// Within a tick nothing changes.
func TestSlidingWindowIsCountedInTicks(t *testing.T) {
	for _, test := range []struct {
		policy quota.Policy
		tick   time.Duration
	}{
		{sliding(100_000, 24*h), µs},
		{sliding(200_000, 24*h), 10 * µs},
		{sliding(1_000_003, 24*h), 10 * µs},
		{sliding(1e11, 24*h), s},
		{sliding(1e10, 24*h+100*ms), 100 * ms},
		{sliding(5, 1_234_567*µs), µs},
	} {
		l := compile(t, test.policy)
		assert.Equal(t, test.tick, l.Tick(), "%+v", test.policy)
	}
	c := newCount(t, sliding(1e11, 24*h)) // a tick is 1,157,407 units
	c.wait(12 * h)
	c.take(1e11)
	c.wait(24 * h)
	assert.Equal(t, s, c.take(1).RetryAfter)
	c.wait(s - µs)
	assert.Equal(t, µs, c.take(1).RetryAfter)
	c.wait(µs)
	d := c.take(1)
	assert.True(t, d.Allowed)
	assert.EqualValues(t, int64(1e11)/86_400-1, d.Remaining)
}

func TestSlidingWindowReserves(t *testing.T) {
	c := newCount(t, sliding(10, m))
	c.take(10)
	for i, want := range []time.Duration{66 * s, 72 * s, 78 * s} {
		wait, ok := c.reserve(1, 78*s)
		assert.Equal(t, want, wait, i)
		assert.True(t, ok, i)
	}
	wait, ok := c.reserve(1, 84*s-µs)
	assert.Equal(t, 84*s, wait)
	assert.False(t, ok)
	assert.Equal(t, quota.Decision{Limit: 10, NextAfter: 84 * s, ResetAfter: 3 * m}, c.describe())
	c.wait(m)
	assert.Equal(t, 24*s, c.take(1).RetryAfter)

	c = newCount(t, sliding(10, m))
	c.take(10)
	wait, ok = c.reserve(10, h)
	assert.Equal(t, 2*m, wait, "without a previous window")
	assert.True(t, ok)
	wait, ok = c.reserve(10, h)
	assert.Equal(t, 4*m, wait)
	assert.True(t, ok)
}

func TestSlidingWindowRefundsBothWindows(t *testing.T) {
	c := newCount(t, sliding(10, m))
	c.take(6)
	c.wait(m)
	c.take(3)
	assert.EqualValues(t, 1, c.describe().Remaining)
	c.settle(-4, m)
	assert.EqualValues(t, 5, c.describe().Remaining, "2 of the previous window, 3 of this one")
	c.settle(-4, 0)
	assert.EqualValues(t, 8, c.describe().Remaining)
	c.settle(-4, 2*m)
	assert.EqualValues(t, 8, c.describe().Remaining)
	c.settle(-4, m)
	assert.Equal(t, quota.Decision{Limit: 10, Remaining: 10}, c.describe())
}

func TestSlidingWindowOwes(t *testing.T) {
	c := newCount(t, sliding(10, m))
	c.settle(25, 0)
	assert.Equal(t, quota.Decision{Limit: 10, NextAfter: m + 38_400*ms, ResetAfter: 2 * m}, c.describe())
	c.wait(m + 38_400*ms)
	assert.True(t, c.take(1).Allowed)
	c.settle(1<<63-1, 0)
	c.settle(1<<63-1, 0)
	assert.False(t, c.take(1).Allowed)
	c.wait(2 * m)
	assert.EqualValues(t, 10, c.describe().Remaining)
}
