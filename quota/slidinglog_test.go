package quota_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

func logged(n int64, window time.Duration) quota.Policy {
	return quota.Policy{Name: "log", Quota: n, Window: window, Algorithm: quota.SlidingLog}
}

func TestSlidingLogTimeline(t *testing.T) {
	newCount(t, logged(5, m)).follow([]moment{
		{20 * s, 2, true, 3, 0, m, m, 0},
		{10 * s, 1, true, 2, 0, 50 * s, m, 0},
		{10 * s, 2, true, 0, 0, 40 * s, m, 0},
		{0, 1, false, 0, 40 * s, 40 * s, m, 0},
		{0, 3, false, 0, 50 * s, 40 * s, m, 0},
		{0, 5, false, 0, m, 40 * s, m, 0},
		{40*s - µs, 1, false, 0, µs, µs, 20*s + µs, 0},
		{µs, 1, true, 1, 0, 10 * s, m, 0},
		{10 * s, 2, true, 0, 0, 10 * s, m, 0},
		{m - µs, 5, false, 3, µs, µs, µs, 0},
		{µs, 5, true, 0, 0, m, m, 0},
		{m, 6, false, 5, 0, 0, 0, 0}, // never
	})
}

func TestSlidingLogAdmitsTheQuotaInAnyWindow(t *testing.T) {
	c := newCount(t, logged(10, m))
	random := rand.New(rand.NewPCG(1, 2))
	var got trail
	for range 2000 {
		if n := 1 + random.Int64N(4); c.take(n).Allowed {
			got = append(got, struct{ at, n int64 }{c.now, n})
		}
		c.wait(time.Duration(random.Int64N(int64(3 * s))))
	}
	assert.EqualValues(t, 10, got.most(m))
	assert.Greater(t, got.most(m+2*s), int64(10))
}

func TestALogHasNineBytesPerMicrosecondWithCharges(t *testing.T) {
	c := newCount(t, logged(1000, m))
	for range 10 {
		for range 50 {
			c.take(2)
		}
		c.wait(µs)
	}
	assert.Len(t, c.bucket.Log, 10*9)
	assert.Equal(t, "\x06\x49\xea\x2d\xcf\x50\x00\x00\x64", c.bucket.Log[:9])
	assert.Equal(t, noon.UnixMicro()+9, c.bucket.Time)
	assert.EqualValues(t, 1000, c.bucket.Level)
}

// A reservation is an entry of the time when it may be used, and counts until then, too.
func TestSlidingLogReserves(t *testing.T) {
	c := newCount(t, logged(2, m))
	c.take(1)
	c.wait(10 * s)
	c.take(1)
	for i, want := range []time.Duration{50 * s, 60 * s, 110 * s} {
		wait, ok := c.reserve(1, 110*s)
		assert.Equal(t, want, wait, i)
		assert.True(t, ok, i)
	}
	wait, ok := c.reserve(2, 3*m-11*s)
	assert.Equal(t, 170*s, wait)
	assert.False(t, ok)
	assert.Equal(t, quota.Decision{Limit: 2, NextAfter: 120 * s, ResetAfter: 170 * s}, c.describe())

	// After the refund, it is as if the reservation had never been.
	c.settle(-1, -60*s)
	assert.Equal(t, quota.Decision{Limit: 2, NextAfter: 110 * s, ResetAfter: 170 * s}, c.describe())
	c.settle(-1, -110*s)
	c.settle(-1, -50*s)
	assert.Equal(t, quota.Decision{Limit: 2, NextAfter: 50 * s, ResetAfter: 60 * s}, c.describe())
}

func TestSlidingLogReservesUpToItsBounds(t *testing.T) {
	c := newCount(t, logged(1, s))
	n := 0
	for ok := true; ok; n++ {
		_, ok = c.reserve(1, h)
	}
	assert.Equal(t, 2001, n)
	assert.Len(t, c.bucket.Log, 2000*9)
	wait, ok := c.reserve(1, h)
	assert.Equal(t, 2000*s, wait)
	assert.False(t, ok)

	c = newCount(t, logged(1, 10*h))
	for i, want := range []bool{true, true, true, false} {
		wait, ok := c.reserve(1, 100*h)
		assert.Equal(t, time.Duration(i)*10*h, wait)
		assert.Equal(t, want, ok, i)
	}
}

func TestSlidingLogRefundsTheChargesOfThatTime(t *testing.T) {
	c := newCount(t, logged(10, m))
	for range 3 {
		c.take(3)
		c.wait(10 * s)
	}
	c.settle(-2, 20*s) // of the second take
	assert.Equal(t, quota.Decision{Limit: 10, Remaining: 3, NextAfter: 30 * s, ResetAfter: 50 * s}, c.describe())
	c.wait(30 * s)
	assert.EqualValues(t, 6, c.describe().Remaining)
	c.wait(10 * s)
	assert.EqualValues(t, 7, c.describe().Remaining)
	c.settle(-3, m) // expired long ago
	c.settle(-3, 70*s)
	assert.EqualValues(t, 7, c.describe().Remaining)
	c.settle(-3, -µs)
	assert.EqualValues(t, 7, c.describe().Remaining, "nothing was taken since")
	c.settle(-100, 50*s)
	assert.Equal(t, quota.Decision{Limit: 10, Remaining: 10}, c.describe())
}

// A refund without a time is for the newest charges.
func TestSlidingLogRefundsTheNewestWithoutATime(t *testing.T) {
	c := newCount(t, logged(10, m))
	for range 3 {
		c.take(3)
		c.wait(10 * s)
	}
	c.bucket = c.limit.Settle(c.bucket, -4, 0, c.now)
	assert.Equal(t, quota.Decision{Limit: 10, Remaining: 5, NextAfter: 30 * s, ResetAfter: 40 * s}, c.describe())
	c.bucket = c.limit.Settle(c.bucket, -1<<63, 0, c.now)
	assert.Equal(t, quota.Decision{Limit: 10, Remaining: 10}, c.describe())
}

func TestSlidingLogOwesUpToItsBounds(t *testing.T) {
	c := newCount(t, logged(10, m))
	c.take(10)
	c.wait(10 * s)
	c.settle(5, 0)
	assert.Equal(t, quota.Decision{Limit: 10, NextAfter: 50 * s, ResetAfter: m}, c.describe())
	assert.Equal(t, m, c.take(6).RetryAfter)
	c.settle(1<<63-1, 0)
	c.settle(1<<63-1, 0)
	assert.EqualValues(t, 1<<16-1, c.bucket.Level)
	assert.Equal(t, m, c.take(1).RetryAfter)

	c = newCount(t, logged(1, h))
	for range 3000 {
		c.settle(1, 0)
		c.wait(ms)
	}
	assert.Len(t, c.bucket.Log, 2000*9)
	assert.EqualValues(t, 3000, c.bucket.Level)
	assert.Equal(t, h-ms, c.describe().ResetAfter, "the newest entry has the rest")
}

// After the clock was set back, what was charged later counts as charged now.
func TestSlidingLogAcceptsAnEarlierClock(t *testing.T) {
	c := newCount(t, logged(3, m))
	c.take(1)
	c.wait(-s)
	assert.True(t, c.take(1).Allowed)
	assert.Equal(t, quota.Decision{Limit: 3, Remaining: 1, NextAfter: m, ResetAfter: m}, c.describe())
	c.settle(-1, 0)
	assert.EqualValues(t, 2, c.describe().Remaining, "and so is its refund")
}
