package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A leaseFleet is several processes with Leases on one Redis.
type leaseFleet struct {
	t     *testing.T
	redis *fakeRedis
	start time.Time

	mu   sync.Mutex      // guards what follows
	uses []time.Duration // when units were used, since start
}

// inFleet runs play in a synctest bubble.
func inFleet(t *testing.T, play func(t *testing.T, f *leaseFleet)) {
	synctest.Test(t, func(t *testing.T) {
		play(t, &leaseFleet{t: t, redis: newFakeRedis(time.Millisecond), start: time.Now()})
	})
}

func (f *leaseFleet) lease() (*redisstore.Lease, *fakeLink) {
	link := f.redis.link(f.t)
	l := &redisstore.Lease{Store: &redisstore.Store{Client: link.Client, Timeout: 125 * ms}}
	f.t.Cleanup(func() {
		_ = l.Close(context.Background())
		time.Sleep(time.Minute)
	})
	return l, link
}

// slow returns a Limit that does not refill during a test.
func (f *leaseFleet) slow(burst int64) *quota.Limit {
	return f.redis.limit(quota.Policy{Quota: 1, Window: time.Hour, Burst: burst})
}

// use takes charges and records one use, if they are allowed.
func (f *leaseFleet) use(l *redisstore.Lease, charges ...quota.Charge) bool {
	ds, err := l.Take(f.t.Context(), nil, charges...)
	if err != nil || slices.ContainsFunc(ds, func(d quota.Decision) bool { return !d.Allowed }) {
		return false
	}
	f.used()
	return true
}

func (f *leaseFleet) used() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses = append(f.uses, time.Since(f.start))
}

// useUntilHeld uses units of a full bucket until l holds some. It returns how many would be left without those.
func (f *leaseFleet) useUntilHeld(l *redisstore.Lease, c quota.Charge) (left int64) {
	for left = c.Limit.Policy().Burst; f.redis.remaining(c.Key, c.Limit) == left; left-- {
		require.True(f.t, f.use(l, c))
		time.Sleep(5 * ms) // for the refill
	}
	return left
}

// useUpHeld does the same, and then uses those.
func (f *leaseFleet) useUpHeld(l *redisstore.Lease, c quota.Charge) (left int64) {
	for left = f.useUntilHeld(l, c); left != f.redis.remaining(c.Key, c.Limit); left-- {
		require.True(f.t, f.use(l, c))
	}
	return left
}

func TestALeaseRarelyAsksRedis(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		c := quota.Charge{Key: "key", Limit: f.slow(100_000)}
		l, _ := f.lease()
		for n := range int64(5000) {
			require.True(t, f.use(l, c))
			time.Sleep(2 * ms)
			held := 100_000 - (n + 1) - f.redis.remaining("key", c.Limit)
			require.LessOrEqual(t, held, int64(100), "Max")
		}
		assert.Less(t, f.redis.roundTrips(), 2*5000/100+50, "it takes a hundred at once, and asks first")
		time.Sleep(time.Second)
		assert.Zero(t, redisstore.Held(l), "an idle Lease keeps nothing")
		assert.EqualValues(t, 95_000, f.redis.remaining("key", c.Limit))
		calls := f.redis.roundTrips()
		time.Sleep(time.Hour)
		assert.Equal(t, calls, f.redis.roundTrips(), "and sends nothing")
		c.Limit = f.redis.limit(quota.PerSecond(100_000))
		for range 100 {
			require.True(t, f.use(l, c))
			time.Sleep(2 * ms)
		}
		assert.Less(t, f.redis.roundTrips(), calls+30, "units may be used although they have drained in Redis")
	})
}

func TestSeldomOrUnsuitableCallsGoToTheStore(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		l, _ := f.lease()
		limit := f.slow(1000)
		leaky := quota.Policy{Name: "leaky", Quota: 1000, Window: time.Second, Algorithm: quota.LeakyBucket}
		for name, c := range map[string]quota.Charge{
			"ID":      {ID: "id", Limit: limit},
			"dry run": {DryRun: true, Limit: limit},
			"leaky":   {Limit: f.redis.limit(leaky)},
			"large":   {N: 51, Limit: limit},
		} {
			c.Key = name
			calls := f.redis.roundTrips()
			for range 10 {
				require.True(t, f.use(l, c), name)
			}
			assert.Equal(t, calls+10, f.redis.roundTrips(), name)
		}
		calls := f.redis.roundTrips()
		for range 100 {
			require.True(t, f.use(l, quota.Charge{Key: "seldom", Limit: limit}))
			time.Sleep(42 * ms) // three within 125 ms
		}
		assert.Equal(t, calls+100, f.redis.roundTrips())
	})
}

func TestNothingIsTakenAheadNearTheLimit(t *testing.T) {
	for since, left := range map[time.Duration]int64{30 * ms: 19, 0: 15} { // the last refill, which may be relied on
		inFleet(t, func(t *testing.T, f *leaseFleet) {
			c := quota.Charge{Key: "key", Limit: f.slow(1000)}
			l, _ := f.lease()
			f.redis.charge(c, f.useUpHeld(l, c)-left)
			time.Sleep(since)
			calls := f.redis.roundTrips()
			for n := left - 1; n >= 0; n-- {
				require.True(t, f.use(l, c))
				time.Sleep(5 * ms)
				require.Equal(t, n, f.redis.remaining("key", c.Limit))
			}
			assert.Equal(t, calls+int(left)+1, f.redis.roundTrips(), "it tried once")
			ds, err := l.Take(t.Context(), nil, c)
			require.NoError(t, err)
			assert.False(t, ds[0].Allowed)
			assert.InDelta(t, f.redis.wait(c), ds[0].RetryAfter, float64(ms))
		})
	}
}

// Units that have drained in Redis while they were held are not given back: others may have used them.
func TestWhatIsLeftGoesBackUnlessItHasDrained(t *testing.T) {
	for name, test := range map[string]struct {
		perSecond int64
		after     time.Duration
		back      int64 // of the 8 that are taken ahead, of which one is used
	}{
		"closed":                    {0, 5 * ms, 7},
		"closed, half has drained":  {24, 5 * ms, 4}, // in 140 ms, of which Timeout is for the refund
		"expired":                   {0, 300 * ms, 7},
		"expired, half has drained": {10, 300 * ms, 4}, // in 375 ms
		"expired, all have drained": {25, 300 * ms, 0},
	} {
		inFleet(t, func(t *testing.T, f *leaseFleet) {
			f.redis.setRTT(0)
			limit := f.redis.limit(quota.Policy{Quota: max(1, 86_400*test.perSecond), Window: 24 * time.Hour, Burst: 1000})
			c := quota.Charge{Key: "key", Limit: limit}
			f.redis.charge(c, 500)
			l, _ := f.lease()
			for range 4 {
				require.True(t, f.use(l, c))
			}
			time.Sleep(10 * ms)
			before, start := f.redis.remaining("key", limit), time.Now()
			ds, err := l.Take(t.Context(), nil, c)
			require.NoError(t, err)
			assert.Equal(t, before, f.redis.remaining("key", limit), "it was held")
			// The refill and the call that started it reach Redis in either order.
			assert.LessOrEqual(t, ds[0].Remaining, before+1, "no more is promised than what Redis has left")
			time.Sleep(test.after)
			require.NoError(t, l.Close(t.Context()))
			refilled := float64(test.perSecond) * time.Since(start).Seconds()
			assert.InDelta(t, test.back, float64(f.redis.remaining("key", limit)-before)-refilled, 1, name)
		})
	}
}

// A fixed window's units are not used in the next one, which counts anew.
func TestHeldUnitsExpire(t *testing.T) {
	day := quota.Policy{Quota: 1000, Window: 24 * time.Hour}
	window := quota.Policy{Quota: 1000, Window: 200 * ms, Algorithm: quota.FixedWindow}
	for _, test := range []struct {
		policy quota.Policy
		sleep  time.Duration // until 250 ms after the units were charged, or the window ends
		used   bool
	}{{day, 244 * ms, true}, {day, 245 * ms, false}, {window, 172 * ms, true}, {window, 173 * ms, false}} {
		inFleet(t, func(t *testing.T, f *leaseFleet) {
			c := quota.Charge{Key: "key", Limit: f.redis.limit(test.policy)}
			l, _ := f.lease()
			f.useUntilHeld(l, c)
			require.Equal(t, 27*ms, time.Since(f.start))
			time.Sleep(test.sleep)
			f.redis.fail(errors.New("gone"))
			assert.Equal(t, test.used, f.use(l, c), "%v after %v", test.policy.Algorithm, test.sleep)
		})
	}
}

func TestOnlyEqualCallsAreHeldTogether(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		policy := quota.Policy{Name: "changed", Quota: 1, Window: 24 * time.Hour, Burst: 1000}
		was := quota.Charge{Key: "key", Limit: f.redis.limit(policy)}
		policy.Burst = 2000
		is := quota.Charge{Key: "key", Limit: f.redis.limit(policy)}
		other := quota.Charge{Key: "other", Limit: f.slow(1000)}
		l, _ := f.lease()
		f.useUntilHeld(l, was)
		for _, charges := range [][]quota.Charge{{is}, {was, other}, {{Key: "key", Limit: was.Limit, N: 2}}} {
			calls := f.redis.roundTrips()
			require.True(t, f.use(l, charges...))
			assert.Equal(t, calls+1, f.redis.roundTrips())
		}
		for range 20 {
			require.True(t, f.use(l, was, other))
			time.Sleep(5 * ms)
		}
		other.N = 2
		f.redis.charge(other, f.redis.remaining("other", other.Limit)-38)
		for left := int64(36); left >= 0; left -= 2 {
			require.True(t, f.use(l, was, other))
			time.Sleep(5 * ms)
			require.Equal(t, left, f.redis.remaining("other", other.Limit), "one of the limits is near")
		}
		assert.False(t, f.use(l, was, other))
	})
}

func TestReservationsUseHeldUnits(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		c := quota.Charge{Key: "key", Limit: f.redis.limit(quota.Policy{Quota: 1, Window: time.Second, Burst: 1000})}
		l, _ := f.lease()
		f.useUntilHeld(l, c)
		calls, start := f.redis.roundTrips(), time.Now()
		wait, at, ok, err := l.Reserve(t.Context(), time.Second, c)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Zero(t, wait)
		assert.Equal(t, calls, f.redis.roundTrips())
		assert.WithinDuration(t, start, at, 10*ms)
		f.redis.charge(c, 1000)
		for range 100 { // until none is held
			wait, _, ok, err = l.Reserve(t.Context(), time.Hour, c)
			require.NoError(t, err)
			assert.True(t, ok)
		}
		assert.Greater(t, wait, time.Second, "the Store's answer")
	})
}

func TestALeaseWithoutAStoreFails(t *testing.T) {
	var l redisstore.Lease
	c := quota.Charge{Key: "key", N: 1, Limit: compile(t, quota.PerDay(1000))}
	for range 10 {
		_, err := l.Take(ctx, nil, c)
		assert.Error(t, err)
	}
	_, _, _, err := l.Reserve(ctx, 0, c)
	assert.Error(t, err)
	assert.Error(t, l.Settle(ctx, c))
	assert.NoError(t, l.Close(ctx))
}

// Callers may leave, and the Lease may be closed, at any moment of a refill or a refund.
func TestCloseWaitsForRefillsAndRefunds(t *testing.T) {
	for pause := time.Duration(0); pause < 300*ms; pause += 7 * ms {
		inFleet(t, func(t *testing.T, f *leaseFleet) {
			c := quota.Charge{Key: "key", Limit: f.slow(10_000)}
			l, _ := f.lease()
			left := f.useUpHeld(l, c)
			f.redis.setRTT(20 * ms)
			impatient, cancel := context.WithTimeout(t.Context(), 10*ms)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := l.Take(impatient, nil, c) // waits for a refill
				done <- err
			}()
			synctest.Wait()
			time.Sleep(pause)
			require.NoError(t, l.Close(t.Context()))
			assert.ErrorIs(t, <-done, context.DeadlineExceeded)
			assert.InDelta(t, left, f.redis.remaining("key", c.Limit), 1, "closed after %v: rounded down", pause)
			calls := f.redis.roundTrips()
			for range 10 {
				require.True(t, f.use(l, c))
			}
			time.Sleep(time.Second)
			assert.Equal(t, calls+10, f.redis.roundTrips(), "after Close the Store decides")
		})
	}
}

func TestAFleetOfLeasesNeverExceedsItsBound(t *testing.T) {
	for seed := range uint64(stated(500, 10)) {
		inFleet(t, func(t *testing.T, f *leaseFleet) {
			r := rand.New(rand.NewPCG(seed, 0))
			p := quota.Policy{Quota: 1 + r.Int64N(400), Window: time.Second, Burst: 50 + r.Int64N(400)}
			c := quota.Charge{Key: "key", Limit: f.redis.limit(p)}
			callers(1+r.IntN(6), 1, func(i, _ int) { f.process(c, rand.New(rand.NewPCG(seed, uint64(1+i)))) })
			slices.Sort(f.uses)
			each := time.Second / time.Duration(p.Quota)
			var first time.Duration // the use from which most uses are counted, brought forward by those before it
			for i, at := range f.uses {
				require.LessOrEqual(t, float64(i+1), float64(p.Burst)+float64(p.Quota)*at.Seconds()+1e-6, "from the start")
				first = max(first, at-time.Duration(i)*each)
				late := time.Duration(i+1-int(p.Burst))*each - (at - first)
				require.LessOrEqual(t, late, 250*ms)
			}
			require.NotEmpty(t, f.uses)
		})
	}
}

// process uses a limit at random for ten seconds. Now and then it crashes with the units that it holds, or closes
// its Lease and starts again.
func (f *leaseFleet) process(c quota.Charge, r *rand.Rand) {
	upTo := func(d time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(d)))) }
	l, link := f.lease()
	for time.Since(f.start) < 10*time.Second {
		switch r.IntN(12) {
		case 0:
			link.sever()
			l, link = f.lease()
		case 1:
			_ = l.Close(f.t.Context())
			l, link = f.lease()
		case 2:
			f.redis.loseAnswers(1)
		case 3, 4:
			upTo(400 * ms)
		case 5, 6, 7: // units as they come
			for range r.IntN(100) {
				f.use(l, c)
				upTo(10 * ms)
			}
		case 8, 9: // all units at once
			for n := r.IntN(400); n > 0 && f.use(l, c); n-- {
			}
		default:
			if wait, _, ok, err := l.Reserve(f.t.Context(), 100*ms, c); err == nil && ok {
				time.Sleep(wait)
				f.used()
			}
		}
	}
}

func TestNothingIsLostOrUsedTwice(t *testing.T) {
	mostlyWaits(t)
	for algorithm, most := range map[quota.Algorithm]int64{
		quota.TokenBucket: 20_000, quota.FixedWindow: 20_000, quota.SlidingWindow: 20_000, quota.SlidingLog: 1000,
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			mostlyWaits(t)
			server := redistest.Shared(t)
			c := quota.Charge{Key: "key", Limit: compile(t, quota.Policy{
				Quota: most, Window: 50 * 365 * 24 * time.Hour, Algorithm: algorithm,
			})}
			var used atomic.Int64
			callers(3, 2, func(_, _ int) {
				l := &redisstore.Lease{Store: newStore(t, server)}
				callers(8, 300, func(_, _ int) {
					c := c
					c.N = 1 + rand.Int64N(2)
					ds, err := l.Take(ctx, nil, c)
					if assert.NoError(t, err) && ds[0].Allowed {
						used.Add(c.N)
					}
					if rand.IntN(300) == 0 {
						time.Sleep(300 * ms) // long enough for units to expire
					}
				})
				assert.NoError(t, l.Close(ctx))
			})
			ds, err := newStore(t, server).Peek(ctx, nil, c)
			require.NoError(t, err)
			assert.LessOrEqual(t, ds[0].Remaining, most-used.Load())
			if algorithm != quota.TokenBucket { // its refunds are rounded down
				assert.Equal(t, most-used.Load(), ds[0].Remaining)
			}
		})
	}
}
