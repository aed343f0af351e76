package quota_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// together runs do in n goroutines.
func together(n int, do func(i int, random *rand.Rand)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i, rand.New(rand.NewPCG(uint64(i), 0))) })
	}
	all.Wait()
}

// disturb runs do over and over until stop is called.
func disturb(do func(i int)) (stop func()) {
	var done atomic.Bool
	var ended sync.WaitGroup
	ended.Go(func() {
		for i := 0; !done.Load(); i++ {
			do(i)
			runtime.Gosched()
		}
	})
	return func() { done.Store(true); ended.Wait() }
}

// All goroutines ask for more of each key than there is, in a bubble, where no time
// passes. What is admitted is what there is, to the unit.
func greed(t *testing.T, m *quota.Memory, l *quota.Limit, keys []string, each int, unit int64) {
	t.Helper()
	taken := make([]atomic.Int64, len(keys))
	together(64, func(_ int, random *rand.Rand) {
		var ds []quota.Decision
		for range each {
			k, n := random.IntN(len(keys)), unit*(1+random.Int64N(3))
			ds, _ = m.Take(ctx, ds[:0], quota.Charge{Key: keys[k], Limit: l, N: n})
			if ds[0].Allowed {
				taken[k].Add(n)
			}
		}
	})
	for k, key := range keys {
		if left := peek(t, m, key, l).Remaining; left > 0 {
			require.True(t, take(t, m, key, left, l).Allowed, key)
			taken[k].Add(left)
		}
		require.False(t, take(t, m, key, 1, l).Allowed, key)
		require.Equal(t, l.AtOnce(), taken[k].Load(), key)
	}
}

func names(what string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(what, " ", i)
	}
	return all
}

func TestCountsAreExactUnder64Goroutines(t *testing.T) {
	for _, p := range []quota.Policy{
		quota.PerDay(1000),
		{Quota: 999, Window: time.Hour, Algorithm: quota.LeakyBucket},
		{Quota: 1000, Window: time.Hour, Algorithm: quota.FixedWindow},
		{Quota: 1000, Window: time.Hour, Algorithm: quota.SlidingWindow},
		{Quota: 1000, Window: time.Hour, Algorithm: quota.SlidingLog},
		quota.PerDay(1_000_003),
		{Quota: 1000, Calendar: quota.Month, Algorithm: quota.FixedWindow},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, unit := compile(t, p), int64(1)
			if !testenv.Long() {
				unit += l.AtOnce() / 64_000 // at most a thousand charges of each goroutine
			}
			greed(t, new(quota.Memory), l, names("key", 3), 1+int(l.AtOnce()/64/unit), unit)
		})
	}
}

func TestGrowingLosesNoCharge(t *testing.T) {
	for _, most := range []int{5000, 100_000} { // one shard, and many
		synctest.Test(t, func(t *testing.T) {
			m := &quota.Memory{MaxKeys: most}
			year := compile(t, quota.Policy{Quota: 1, Window: 365 * 24 * time.Hour})
			stop := disturb(func(i int) {
				if i < most/2 {
					_, _ = m.Take(ctx, nil, quota.Charge{Key: fmt.Sprint(i), Limit: year})
				}
			})
			greed(t, m, compile(t, quota.PerDay(300)), names("hot", 100), 1000, 1)
			stop()
			assert.Zero(t, m.Forgotten())
		})
	}
}

// A flood moves entries about and evicts others.
func TestEvictionOfOtherKeysLosesNoCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &quota.Memory{MaxKeys: 500}
		year := compile(t, quota.Policy{Quota: 3000, Burst: 600, Window: 365 * 24 * time.Hour})
		hot := names("hot", 20)
		for _, key := range hot {
			take(t, m, key, 300, year) // to owe more than any other
		}
		day := compile(t, quota.PerDay(1))
		stop := disturb(func(i int) { _, _ = m.Take(ctx, nil, quota.Charge{Key: fmt.Sprint(i), Limit: day}) })
		taken := make([]atomic.Int64, len(hot))
		together(8, func(_ int, random *rand.Rand) {
			for range 2000 {
				k := random.IntN(len(hot))
				ds, _ := m.Take(ctx, nil, quota.Charge{Key: hot[k], Limit: year})
				if ds[0].Allowed {
					taken[k].Add(1)
				}
			}
		})
		for m.Forgotten() < 1000 {
			runtime.Gosched()
		}
		stop()
		for k, key := range hot {
			for take(t, m, key, 1, year).Allowed {
				taken[k].Add(1)
			}
			assert.EqualValues(t, 300, taken[k].Load())
		}
	})
}

// A bucket that owes nothing is evicted while it is charged again. In real time, because
// it owes nothing only briefly.
func TestEvictionDuringAChargeLosesNoCharge(t *testing.T) {
	m := &quota.Memory{MaxKeys: 100}
	l := compile(t, quota.Policy{Quota: 50_000, Window: time.Second, Burst: 5})
	stop := disturb(func(i int) { _, _ = m.Take(ctx, nil, quota.Charge{Key: fmt.Sprint(i), Limit: l}) })
	hot := names("hot", 3)
	taken, first, last := make([]int64, 3), make([]time.Time, 3), make([]time.Time, 3)
	var mu sync.Mutex
	together(4, func(_ int, random *rand.Rand) {
		for range 20_000 {
			k := random.IntN(len(hot))
			ds, _ := m.Take(ctx, nil, quota.Charge{Key: hot[k], Limit: l})
			mu.Lock()
			if ds[0].Allowed {
				taken[k]++
			}
			if first[k].IsZero() || ds[0].At.Before(first[k]) {
				first[k] = ds[0].At
			}
			if ds[0].At.After(last[k]) {
				last[k] = ds[0].At
			}
			mu.Unlock()
		}
	})
	stop()
	for k := range hot {
		most := 5 + last[k].Sub(first[k]).Microseconds()*50_000/1_000_000 + 1
		assert.LessOrEqual(t, taken[k], most)
	}
}

// Two buckets that are always charged together are equal in every Peek, whatever else
// happens, and no call deadlocks.
func TestCallsAreAtomic(t *testing.T) {
	m := new(quota.Memory)
	a, b := compile(
		t, quota.Policy{Name: "a", Quota: 1e6, Window: time.Hour},
	), compile(t, quota.Policy{Name: "b", Quota: 1e6, Window: time.Hour})
	pairs := make([][]quota.Charge, 10)
	for i := range pairs {
		key, other := fmt.Sprint(i), fmt.Sprint((i+1)%len(pairs))
		pairs[i] = []quota.Charge{{Key: key, Limit: a, N: 3}, {Key: other, Limit: b, N: 3}}
	}
	stop := disturb(func(i int) { // makes tables grow, and charges the same keys
		_, _ = m.Take(ctx, nil, quota.Charge{Key: fmt.Sprint("new ", i), Limit: a})
		_, _ = m.Take(ctx, nil, quota.Charge{Key: fmt.Sprint(i % 10), Limit: a, DryRun: true})
	})
	defer stop()
	together(8, func(i int, random *rand.Rand) {
		for step := range 2000 {
			pair := pairs[random.IntN(len(pairs))]
			if random.IntN(2) == 0 {
				pair = []quota.Charge{pair[1], pair[0]}
			}
			var ds []quota.Decision
			switch {
			case i%2 == 0:
				ds, _ = m.Peek(ctx, nil, pair...)
			case step%3 == 0:
				back := []quota.Charge{pair[0], pair[1]}
				back[0].N, back[1].N = -2, -2
				assert.NoError(t, m.Settle(ctx, back...))
				continue
			default:
				ds, _ = m.Take(ctx, nil, pair...)
			}
			if !assert.Equal(t, ds[0].ResetAfter, ds[1].ResetAfter) {
				return
			}
		}
	})
}

// Many random calls at once: in the end, what is owed is what was taken less what was
// refunded, and never more than there is.
func TestRandomCallsAreCountedExactly(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			m := &quota.Memory{MaxKeys: []int{100, 200_000}[seed%2]}
			limits := []*quota.Limit{
				compile(t, quota.PerDay(10_000)),
				compile(t, quota.Policy{Quota: 9999, Window: time.Hour, Algorithm: quota.FixedWindow}),
				compile(t, quota.Policy{Quota: 5000, Window: time.Hour, Algorithm: quota.SlidingWindow}),
				compile(t, quota.Policy{Quota: 7, Window: time.Minute, Burst: 5000, Algorithm: quota.LeakyBucket}),
			}
			keys := names("key", 5)
			var owed [5][4]atomic.Int64
			together(16, func(_ int, random *rand.Rand) {
				c := caller{m, limits, keys, &owed, random}
				for range 500 {
					c.step()
				}
			})
			for k, key := range keys {
				for l, limit := range limits {
					d := peek(t, m, key, limit)
					assert.Equal(t, limit.AtOnce()-owed[k][l].Load(), d.Remaining, "%s, %s", key, limit.Name())
				}
			}
		})
	}
}

type caller struct {
	m      *quota.Memory
	limits []*quota.Limit
	keys   []string
	owed   *[5][4]atomic.Int64
	random *rand.Rand
}

// step takes one charge or a few, or reserves, and sometimes refunds.
func (c *caller) step() {
	charges := make([]quota.Charge, 1+c.random.IntN(2)*c.random.IntN(5))
	places := make([]*atomic.Int64, len(charges))
	for i := range charges {
		k, l := c.random.IntN(5), c.random.IntN(4)
		charges[i] = quota.Charge{Key: c.keys[k], Limit: c.limits[l], N: 1 + c.random.Int64N(9)}
		places[i] = &c.owed[k][l]
	}
	if !c.make(charges) {
		return
	}
	for i := range charges {
		places[i].Add(charges[i].N)
	}
	if c.random.IntN(2) == 0 {
		for i := range charges {
			places[i].Add(-charges[i].N)
			charges[i].N = -charges[i].N
		}
		_ = c.m.Settle(ctx, charges...)
	}
}

func (c *caller) make(charges []quota.Charge) (allowed bool) {
	if c.random.IntN(4) == 0 {
		_, _, ok, _ := c.m.Reserve(ctx, 0, charges...)
		return ok
	}
	ds, _ := c.m.Take(ctx, nil, charges...)
	for _, d := range ds {
		if !d.Allowed {
			return false
		}
	}
	return true
}
