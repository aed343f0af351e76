package heed_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

func TestExponentialDoublesUpToItsMaximum(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		base, max time.Duration
		number    int
		want      time.Duration
	}{
		{time.Second, 30 * time.Second, 1, time.Second},
		{time.Second, 30 * time.Second, 2, 2 * time.Second},
		{time.Second, 30 * time.Second, 5, 16 * time.Second},
		{time.Second, 30 * time.Second, 6, 30 * time.Second},
		{time.Second, 30 * time.Second, math.MaxInt, 30 * time.Second},
		{time.Second, most, 34, 1 << 33 * time.Second},
		{time.Second, most, 35, most},
		{time.Second, most, 1000, most},
		{most, most, 3, most},
		{time.Minute, time.Second, 1, time.Second},
		{0, time.Second, math.MaxInt, 0},
		{-time.Second, time.Second, math.MaxInt, -time.Second},
		{time.Second, time.Minute, 0, time.Second},
	} {
		assert.Equal(t, c.want, heed.Exponential(c.base, c.max)(heed.Attempt{Number: c.number}), "%+v", c)
	}
}

// extremes draws many waits and returns the least and the most.
func extremes(b heed.Backoff, a heed.Attempt) (least, most time.Duration) {
	least = math.MaxInt64
	for range 10_000 {
		wait := b(a)
		least, most = min(least, wait), max(most, wait)
	}
	return least, most
}

func TestTheRangeOfEachJitter(t *testing.T) { // F153, F166, B16
	s := time.Second
	exp := heed.Exponential(s, 30*s)
	for name, c := range map[string]struct {
		backoff   heed.Backoff
		attempt   heed.Attempt
		low, high time.Duration
	}{
		"full":                      {heed.FullJitter(exp), heed.Attempt{Number: 4}, 0, 8 * s},
		"full, at the maximum":      {heed.FullJitter(exp), heed.Attempt{Number: 10}, 0, 30 * s},
		"equal":                     {heed.EqualJitter(exp), heed.Attempt{Number: 4}, 4 * s, 8 * s},
		"decorrelated, first":       {heed.Decorrelated(s, 30*s), heed.Attempt{Number: 1}, s, 3 * s},
		"decorrelated, later":       {heed.Decorrelated(s, 30*s), heed.Attempt{Number: 2, Waited: 5 * s}, s, 15 * s},
		"decorrelated, at the most": {heed.Decorrelated(s, 30*s), heed.Attempt{Number: 2, Waited: math.MaxInt64}, s, 30 * s},
		"of the longest":            {heed.FullJitter(heed.Exponential(math.MaxInt64, math.MaxInt64)), heed.Attempt{Number: 1}, 0, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			least, most := extremes(c.backoff, c.attempt)
			part := (c.high - c.low) / 100
			between(t, c.low, least, c.low+part)
			between(t, c.high-part, most, c.high)
		})
	}
	least, most := extremes(heed.FullJitter(heed.Exponential(-s, s)), heed.Attempt{Number: 1})
	assert.Zero(t, least+most)
	least, most = extremes(heed.EqualJitter(heed.Exponential(-s, s)), heed.Attempt{Number: 1})
	assert.Zero(t, least+most)
}
