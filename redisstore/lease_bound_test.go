package redisstore_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lateness returns the smallest d such that in every time t at most Burst + Quota·(t + d)/Window units
// were used.
func lateness(used []time.Duration, p quota.Policy) (worst time.Duration) {
	slices.Sort(used)
	each := func(n int) time.Duration { return time.Duration(n) * p.Window / time.Duration(p.Quota) }
	var first time.Duration // the start of the worst time so far
	for i, at := range used {
		if ahead := at - each(i); i == 0 || ahead > first {
			first = ahead
		}
		worst = max(worst, each(i+1-int(p.Burst))-(at-first))
	}
	return worst
}

func TestTheModelMeasuresTheWorstLateness(t *testing.T) {
	const s = time.Second
	p := quota.Policy{Quota: 2, Window: s, Burst: 3}
	for _, test := range []struct {
		want time.Duration
		used []time.Duration
	}{
		{0, nil},
		{0, []time.Duration{0, 0, 0, s / 2, s}},
		{s / 2, []time.Duration{0, 0, 0, 0}},
		{s, []time.Duration{5 * s, 0, 5 * s, 5 * s, 5 * s, 5 * s}},
		{s / 4, []time.Duration{0, 5 * s, 5 * s, 5 * s, 5*s + s/4}},
	} {
		assert.Equal(t, test.want, lateness(test.used, p), "%v", test.used)
	}
}

// process uses a limit at random until end. Now and then it crashes with the units that it holds, or
// closes its Lease and starts again.
func (f *leaseFleet) process(c quota.Charge, random *rand.Rand, end time.Duration) {
	l, link := f.leaseBy(timeout)
	for time.Since(f.start) < end {
		switch random.IntN(20) {
		case 0:
			link.sever()
			l, link = f.leaseBy(timeout)
		case 1:
			f.redis.loseAnswers(1)
		case 2: // gives back all held units, even if they are needed soon
			_ = l.Close(f.t.Context())
			l, link = f.leaseBy(timeout)
		default:
			f.useAtRandom(l, c, random)
		}
	}
}

// useAtRandom uses the limit in a random way for a while.
func (f *leaseFleet) useAtRandom(l *redisstore.Lease, c quota.Charge, random *rand.Rand) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	switch random.IntN(4) {
	case 0: // nothing
		time.Sleep(upTo(400 * ms))
	case 1: // all units at once
		for n := random.IntN(200); n > 0 && f.take(l, c); n-- {
		}
	case 2: // units as they come
		for n := random.IntN(100); n > 0; n-- {
			f.take(l, c)
			time.Sleep(upTo(10 * ms))
		}
	case 3: // reservations
		for n := random.IntN(20); n > 0; n-- {
			if wait, _, ok, err := l.Reserve(f.t.Context(), 100*ms, c); err == nil && ok {
				time.Sleep(wait)
				f.use()
			}
		}
	}
}

// take uses a unit if there is one.
func (f *leaseFleet) take(l *redisstore.Lease, c quota.Charge) bool {
	ds, err := l.Take(f.t.Context(), nil, c)
	if err != nil || !ds[0].Allowed {
		return false
	}
	f.use()
	return true
}

// late returns the lateness of f's uses, and checks the bound.
func (f *leaseFleet) late(p quota.Policy) time.Duration {
	f.t.Helper()
	if len(f.uses) == 0 {
		return 0
	}
	worst := lateness(f.uses, p)
	require.LessOrEqual(f.t, worst, late)
	for i, at := range f.uses { // from the start
		require.LessOrEqual(f.t, float64(i+1), float64(p.Burst)+float64(p.Quota)*at.Seconds()+1e-6)
	}
	return worst
}

func TestAFleetOfLeasesNeverExceedsItsBound(t *testing.T) {
	var worst time.Duration
	for seed := range uint64(stated(1000, 10)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			f := newLeaseFleet(t)
			p := quota.Policy{Quota: 1 + r.Int64N(200), Window: time.Second, Burst: 1 + r.Int64N(50)}
			c := quota.Charge{Key: "key", Limit: f.redis.limit(p)}
			var all sync.WaitGroup
			for i := range 1 + r.Uint64N(10) {
				all.Go(func() { f.process(c, rand.New(rand.NewPCG(seed, 1+i)), 10*time.Second) })
			}
			all.Wait()
			worst = max(worst, f.late(p))
		})
	}
	t.Logf("worst lateness: %v", worst)
}

// Units that drained in Redis while they were held are not given back: others may have used them.
func TestDrainedUnitsAreNotGivenBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.redis.setRTT(0)
		c := quota.Charge{Key: "key", Limit: f.redis.limit(quota.PerSecond(100))}
		l := f.lease()
		var held int64
		for used := int64(1); held < 20; used++ {
			require.True(t, f.take(l, c))
			held = 100 - used - f.redis.remaining("key", c.Limit)
		}
		time.Sleep(60 * ms)
		f.redis.charge(c, 10)
		before := f.redis.remaining("key", c.Limit)
		require.NoError(t, l.Close(t.Context()))
		const drained = 6 + 5 // includes the Timeout of 50 ms for the refund
		assert.InDelta(t, held-drained, f.redis.remaining("key", c.Limit)-before, 1)
	})
}

// Held units that are not used for 125 ms may go back before they expire.
func TestHeldUnitsAreNotUsedAfter250ms(t *testing.T) {
	for after, used := range map[time.Duration]bool{100 * ms: true, 260 * ms: false} {
		inFleet(t, func(t *testing.T, f *leaseFleet) {
			c := quota.Charge{Key: "key", Limit: f.redis.limit(quota.PerSecond(1000))}
			l := f.lease()
			f.redis.setRTT(0) // so that all uses happen at one moment and count together
			for range 4 {
				require.True(t, f.take(l, c))
			}
			time.Sleep(after)
			f.redis.fail(errors.New("gone"))
			assert.Equal(t, used, f.take(l, c), "after %v", after)
			f.redis.fail(nil)
			time.Sleep(time.Second)
		})
	}
}
