package quota_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

// One goes at once, two wait, and the next is denied.
func TestLeakyBucketTimeline(t *testing.T) {
	newCount(t, quota.Policy{Quota: 10, Window: s, Burst: 2, Algorithm: quota.LeakyBucket}).follow([]moment{
		{0, 1, true, 2, 0, 100 * ms, 100 * ms, 0},
		{0, 1, true, 1, 0, 100 * ms, 200 * ms, 100 * ms},
		{0, 1, true, 0, 0, 100 * ms, 300 * ms, 200 * ms},
		{0, 1, false, 0, 100 * ms, 100 * ms, 300 * ms, 0},
		{30 * ms, 1, false, 0, 70 * ms, 70 * ms, 270 * ms, 0},
		{70*ms - µs, 1, false, 0, µs, µs, 200*ms + µs, 0},
		{µs, 1, true, 0, 0, 100 * ms, 300 * ms, 200 * ms},
		{250 * ms, 2, true, 0, 0, 50 * ms, 250 * ms, 50 * ms}, // both go at the time of the first
		{250 * ms, 3, true, 0, 0, 100 * ms, 300 * ms, 0},
		{300*ms - µs, 1, true, 1, 0, µs, 100*ms + µs, µs},
		{h, 4, false, 3, 0, 0, 0, 0}, // never
	})
}

func TestLeakyBucketAdmitsAtMostBurstPlusOnePlusQuota(t *testing.T) {
	c := newCount(t, quota.Policy{Quota: 10, Window: s, Burst: 4, Algorithm: quota.LeakyBucket})
	got := c.greedy(every(25*ms, 5*s)...)
	assert.EqualValues(t, 1+4+10, got.most(s+µs))
}

// If callers wait for their Delay, they go at even intervals.
func TestLeakyBucketSpacesRequestsEvenly(t *testing.T) {
	c := newCount(t, quota.Policy{Quota: 10, Window: s, Burst: 5, Algorithm: quota.LeakyBucket})
	var sends trail
	for range 400 {
		if d := c.take(1); d.Allowed {
			sends = append(sends, struct{ at, n int64 }{c.now + d.Delay.Microseconds(), 1})
		}
		c.wait(7 * ms)
	}
	assert.EqualValues(t, 10, sends.most(s), "the next one goes after the second")
	for i := range sends[1:] {
		assert.EqualValues(t, 100_000, sends[i+1].at-sends[i].at, "request %d", i)
	}
}

func TestLeakyBucketReserves(t *testing.T) {
	c := newCount(t, quota.Policy{Quota: 10, Window: s, Burst: 1, Algorithm: quota.LeakyBucket})
	for i, want := range []time.Duration{0, 100 * ms, 200 * ms, 300 * ms} { // Burst is for callers that do not reserve
		wait, ok := c.reserve(1, 300*ms)
		assert.Equal(t, want, wait, i)
		assert.True(t, ok, i)
	}
	wait, ok := c.reserve(1, 400*ms-µs)
	assert.Equal(t, 400*ms, wait)
	assert.False(t, ok)
	wait, ok = c.reserve(3, h)
	assert.Equal(t, quota.Forever, wait)
	assert.False(t, ok)
	assert.Equal(t, 300*ms, c.take(1).RetryAfter, "until there is room for one that waits")
}

func TestLeakyBucketAdmitsLikeATokenBucket(t *testing.T) {
	leaky := newCount(t, quota.Policy{Quota: 7, Window: m, Burst: 4, Algorithm: quota.LeakyBucket})
	token := newCount(t, quota.Policy{Quota: 7, Window: m, Burst: 5})
	for i := range 1000 {
		n := int64(i*i%6 + 1)
		a, b := leaky.take(n), token.take(n)
		a.Delay = 0
		assert.Equal(t, b, a)
		step := time.Duration(i*7919%13_000) * ms
		leaky.wait(step)
		token.wait(step)
	}
}
