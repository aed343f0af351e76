package quota_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

func TestTokenBucketTimeline(t *testing.T) {
	newCount(t, quota.Policy{Quota: 60, Window: m, Burst: 3}).follow([]moment{
		{0, 1, true, 2, 0, s, s, 0},
		{0, 2, true, 0, 0, s, 3 * s, 0},
		{0, 1, false, 0, s, s, 3 * s, 0},
		{500 * ms, 1, false, 0, 500 * ms, 500 * ms, 2500 * ms, 0},
		{500*ms - µs, 1, false, 0, µs, µs, 2*s + µs, 0},
		{µs, 1, true, 0, 0, s, 3 * s, 0},
		{1500 * ms, 2, false, 1, 500 * ms, 500 * ms, 1500 * ms, 0},
		{500 * ms, 2, true, 0, 0, s, 3 * s, 0},
		{3*s - µs, 3, false, 2, µs, µs, µs, 0},
		{µs, 3, true, 0, 0, s, 3 * s, 0},
		{h, 4, false, 3, 0, 0, 0, 0}, // never
	})
}

// A Window admits the Burst and what comes back in it, and not a unit more.
func TestTokenBucketAdmitsAtMostBurstPlusQuota(t *testing.T) {
	c := newCount(t, quota.Policy{Quota: 10, Window: s, Burst: 4})
	got := c.greedy(every(100*ms/4, 5*s)...)
	assert.EqualValues(t, 4+10-1, got.most(s), "the next unit comes a Window after the first")
	assert.EqualValues(t, 4+10, got.most(s+µs))

	c = newCount(t, quota.Policy{Quota: 7, Window: s}) // by default, twice the Quota
	got = c.greedy(every(500*µs, 3*s)...)
	assert.EqualValues(t, 14, got.most(s+µs))
}

func TestTokenBucketReservesBeyondTheBurst(t *testing.T) {
	c := newCount(t, quota.Policy{Quota: 10, Window: s, Burst: 2})
	for i, want := range []time.Duration{0, 0, 100 * ms, 200 * ms} {
		wait, ok := c.reserve(1, 200*ms)
		assert.Equal(t, want, wait, i)
		assert.True(t, ok, i)
	}
	wait, ok := c.reserve(1, 300*ms-µs)
	assert.Equal(t, 300*ms, wait)
	assert.False(t, ok)
	wait, ok = c.reserve(3, h)
	assert.Equal(t, quota.Forever, wait)
	assert.False(t, ok)
	assert.Equal(t, 300*ms, c.take(1).RetryAfter)
}

func TestTokenBucketSettles(t *testing.T) {
	c := newCount(t, quota.PerMinute(6))
	c.settle(13, 0)
	assert.Equal(t, quota.Decision{Limit: 6, NextAfter: 80 * s, ResetAfter: 130 * s}, c.describe())
	c.settle(-8, h) // a debt has no age
	assert.Equal(t, quota.Decision{Limit: 6, Remaining: 1, NextAfter: 10 * s, ResetAfter: 50 * s}, c.describe())
	c.settle(-1<<63, 0)
	assert.Equal(t, quota.Decision{Limit: 6, Remaining: 6}, c.describe())
}

func TestRatesAreExact(t *testing.T) {
	for _, p := range []quota.Policy{
		quota.PerMinute(100), quota.PerSecond(3), quota.PerDay(99_991),
		{Quota: 7, Window: 13 * time.Hour, Burst: 2},
	} {
		l := compile(t, p)
		perTick := big.NewRat(l.Rate(), l.Unit())
		want := new(big.Rat).Mul(big.NewRat(p.Quota, int64(p.Window)), big.NewRat(int64(l.Tick()), 1))
		assert.Zero(t, want.Cmp(perTick), "%s: %v a tick, not %v", l.Name(), perTick, want)
		assert.Equal(t, l.AtOnce()*l.Unit(), l.Capacity(), l.Name())
	}
	assert.EqualValues(t, 100, compile(t, quota.PerMinute(100)).AtOnce())
}
