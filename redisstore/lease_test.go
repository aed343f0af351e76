package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

func newLeaseFleet(t *testing.T) *leaseFleet {
	return &leaseFleet{t: t, redis: newFakeRedis(time.Millisecond), start: time.Now()}
}

// inFleet runs play in a synctest bubble.
func inFleet(t *testing.T, play func(t *testing.T, f *leaseFleet)) {
	synctest.Test(t, func(t *testing.T) { play(t, newLeaseFleet(t)) })
}

// each runs process for n processes, each with its own Lease.
func (f *leaseFleet) each(n int, process func(i int, l *redisstore.Lease)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { process(i, f.lease()) })
	}
	all.Wait()
}

func (f *leaseFleet) lease() *redisstore.Lease {
	l, _ := f.leaseBy(timeout)
	return l
}

// leaseBy returns a Lease whose Store has this Timeout, and its connection to Redis.
func (f *leaseFleet) leaseBy(timeout time.Duration) (*redisstore.Lease, *fakeLink) {
	link := f.redis.link(f.t)
	l := &redisstore.Lease{Store: &redisstore.Store{Client: link.Client, Timeout: timeout}}
	f.t.Cleanup(func() {
		if err := l.Close(context.Background()); !link.isCut() {
			assert.NoError(f.t, err)
		}
		time.Sleep(time.Second)
	})
	return l, link
}

// use records that a unit is used now.
func (f *leaseFleet) use() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses = append(f.uses, time.Since(f.start))
}

// within asserts that in no time more units were used than a bucket with perSecond and burst admits in
// that time plus late.
func (f *leaseFleet) within(burst, perSecond int, late time.Duration) {
	f.t.Helper()
	p := quota.Policy{Quota: int64(perSecond), Window: time.Second, Burst: int64(burst)}
	require.LessOrEqual(f.t, lateness(f.uses, p), late)
}

// slow returns a Limit that does not refill during a test.
func (f *leaseFleet) slow(burst int64) *quota.Limit {
	return f.redis.limit(quota.Policy{Quota: 1, Window: time.Hour, Burst: burst})
}

// takeAll takes n units, one by one, and requires that all are admitted.
func (f *leaseFleet) takeAll(l *redisstore.Lease, limit *quota.Limit, n int) {
	f.t.Helper()
	for range n {
		require.True(f.t, f.take(l, quota.Charge{Key: "key", Limit: limit}))
	}
}

// takeUntilHeld takes units of a full bucket, one by one, until the Lease holds some. It returns how many
// are free if those count as free. That takes more units if a horizon ends meanwhile.
func (f *leaseFleet) takeUntilHeld(l *redisstore.Lease, limit *quota.Limit) (free int64) {
	for free = limit.Policy().Burst; f.redis.remaining("key", limit) == free; free-- {
		f.takeAll(l, limit, 1)
		time.Sleep(5 * time.Millisecond) // for a refill in flight
	}
	return free
}

// takeFor takes and uses units until end, with a pause after each call.
func (f *leaseFleet) takeFor(
	l *redisstore.Lease, limit *quota.Limit, end time.Duration, pause func() time.Duration,
) (used int) {
	for time.Since(f.start) < end {
		ds, err := l.Take(f.t.Context(), nil, quota.Charge{Key: "key", Limit: limit, N: 1})
		if assert.NoError(f.t, err) && ds[0].Allowed {
			f.use()
			used++
		}
		time.Sleep(pause())
	}
	return used
}

func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func upTo(d time.Duration) func() time.Duration {
	return func() time.Duration { return 1 + rand.N(d) }
}

const late = 250 * time.Millisecond

// lasting is how long a fleet runs.
var lasting = stated(30*time.Second, 10*time.Second)

func TestAFleetOfLeasesUsesItsWholeLimit(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.Policy{Quota: 100, Window: time.Second, Burst: 20})
		f.each(10, func(_ int, l *redisstore.Lease) { f.takeFor(l, limit, lasting, upTo(20*time.Millisecond)) })
		f.within(20, 100, late)
		given := 20 + int(lasting.Seconds()*100)
		assert.LessOrEqual(t, len(f.uses), given, "no more than the limit since the start")
		assert.GreaterOrEqual(t, len(f.uses), given*98/100)
	})
}

func TestALeaseRarelyAsksRedis(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.PerSecond(1000))
		used := f.takeFor(f.lease(), limit, 10*time.Second, every(2*time.Millisecond))
		assert.GreaterOrEqual(t, used, 4900, "none is denied, and few wait for Redis")
		assert.LessOrEqual(t, f.redis.roundTrips(), used/20)
	})
}

// A process in a tight loop takes everything that is free. For a process that it starves, units are taken
// ahead, and they are there after RetryAfter. The bounds allow for chance: of ten thousand calls one waits
// for longer than 250 ms, and each further 125 ms is several times rarer.
func TestABusyLeaseDoesNotStarveAQuietOne(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.Policy{Quota: 100, Window: time.Second, Burst: 10})
		var all sync.WaitGroup
		var quiet, slow atomic.Int64 // calls
		all.Go(func() { f.takeFor(f.lease(), limit, lasting, every(time.Millisecond/2)) })
		for range 9 {
			all.Go(func() {
				l := f.lease()
				for time.Since(f.start) < lasting {
					asked := time.Now()
					f.obey(l, quota.Charge{Key: "key", Limit: limit})
					waited := time.Since(asked)
					assert.Less(t, waited, 3*time.Second)
					if quiet.Add(1); waited > 250*time.Millisecond {
						slow.Add(1)
					}
					time.Sleep(rand.N(400 * time.Millisecond)) // half of its fair share
				}
			})
		}
		all.Wait()
		f.within(10, 100, late)
		assert.LessOrEqual(t, slow.Load(), quiet.Load()/50)
		assert.GreaterOrEqual(t, len(f.uses), int(lasting.Seconds()*100)*80/100,
			"few units taken ahead for quiet processes are lost")
	})
}

// obey takes a unit, and tries again after RetryAfter.
func (f *leaseFleet) obey(l *redisstore.Lease, c quota.Charge) {
	for {
		ds, err := l.Take(f.t.Context(), nil, c)
		if !assert.NoError(f.t, err) {
			return
		}
		if ds[0].Allowed {
			f.use()
			return
		}
		time.Sleep(ds[0].RetryAfter)
	}
}

func TestBusyReservationsDoNotStarveQuietOnes(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.Policy{Quota: 100, Window: time.Second, Burst: 10})
		reserve := func(l *redisstore.Lease, pause time.Duration) {
			for time.Since(f.start) < lasting {
				asked := time.Now()
				wait, _, ok, err := l.Reserve(t.Context(), time.Minute, quota.Charge{Key: "key", Limit: limit})
				if assert.NoError(t, err) && assert.True(t, ok) {
					time.Sleep(wait)
					f.use()
				}
				assert.Less(t, time.Since(asked), time.Second)
				time.Sleep(pause)
			}
		}
		var all sync.WaitGroup
		greedy := f.lease()
		for range 16 {
			all.Go(func() { reserve(greedy, 0) })
		}
		for range 9 {
			all.Go(func() { reserve(f.lease(), rand.N(400*time.Millisecond)) })
		}
		all.Wait()
		f.within(10, 100, late)
		assert.GreaterOrEqual(t, len(f.uses), int(lasting.Seconds()*100)*98/100)
	})
}

func TestBusyLeasesShareEqually(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.Policy{Quota: 200, Window: time.Second, Burst: 20})
		used := make([]int, 10)
		f.each(len(used), func(i int, l *redisstore.Lease) {
			used[i] = f.takeFor(l, limit, lasting, upTo(time.Duration(i+1)*2*time.Millisecond))
		})
		assert.GreaterOrEqual(t, jain(used), 0.95, "%v", used)
	})
}

// jain returns Jain's fairness index: 1 if all have the same, 1/n if one has all.
func jain(used []int) float64 {
	var sum, squares float64
	for _, n := range used {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(used)) * squares)
}

func TestUnusedUnitsGoBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.slow(100)
		l := f.lease()
		f.takeAll(l, limit, 40)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 60-1, f.redis.remaining("key", limit), "the refill of a second is rounded up")
	})
}

func TestCloseGivesBackHeldUnits(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.slow(100)
		l := f.lease()
		free := f.takeUntilHeld(l, limit)
		require.NoError(t, l.Close(t.Context()))
		assert.EqualValues(t, free-1, f.redis.remaining("key", limit))
		for n := range int64(20) {
			f.takeAll(l, limit, 1)
			require.EqualValues(t, free-1-1-n, f.redis.remaining("key", limit), "after Close the Store decides")
		}
	})
}

func TestARefundIsMadeOnceAlthoughItsAnswerIsLost(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.slow(100)
		l := f.lease()
		free := f.takeUntilHeld(l, limit)
		f.redis.loseAnswers(3)
		require.NoError(t, l.Close(t.Context()))
		assert.EqualValues(t, free-1, f.redis.remaining("key", limit))
	})
}

func TestReservationsFromALeaseAreSpacedLikeTheBucket(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.Policy{Quota: 50, Window: time.Second, Burst: 5})
		l := f.lease()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for time.Since(f.start) < 10*time.Second {
					wait, _, ok, err := l.Reserve(t.Context(), time.Minute, quota.Charge{Key: "key", Limit: limit})
					if assert.NoError(t, err) && assert.True(t, ok) {
						time.Sleep(wait)
						f.use()
					}
				}
			})
		}
		all.Wait()
		f.within(5, 50, late)
		assert.GreaterOrEqual(t, len(f.uses), 500*98/100)
	})
}

func TestChargesOfSeveralLimitsAreHeldTogether(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		fast := f.redis.limit(quota.Policy{Quota: 50, Window: time.Second, Burst: 5})
		slow := f.redis.limit(quota.Policy{Quota: 100, Window: 10 * time.Second, Burst: 30})
		l := f.lease()
		for time.Since(f.start) < 20*time.Second {
			ds, err := l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: fast}, quota.Charge{Key: "key", Limit: slow})
			require.NoError(t, err)
			if ds[0].Allowed && ds[1].Allowed {
				f.use()
			}
			time.Sleep(5 * time.Millisecond)
		}
		f.within(5, 50, late)
		f.within(30, 10, late)
		assert.LessOrEqual(t, len(f.uses), 30+20*10)
		assert.GreaterOrEqual(t, len(f.uses), 210)
	})
}

func TestWaitingForRetryAfterOfALeaseIsEnough(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.redis.setRTT(0)
		limit := f.redis.limit(quota.Policy{Quota: 1, Window: time.Second, Burst: 10})
		l := f.lease()
		charge := quota.Charge{Key: "key", Limit: limit}
		f.takeAll(l, limit, 10)
		ds, err := l.Take(t.Context(), nil, charge)
		require.NoError(t, err)
		require.False(t, ds[0].Allowed)
		require.Equal(t, time.Second, ds[0].RetryAfter)
		calls := f.redis.roundTrips()
		for range 100 {
			require.False(t, f.take(l, charge))
		}
		assert.Equal(t, calls, f.redis.roundTrips(), "Redis is not asked about a known denial")
		time.Sleep(time.Second - time.Microsecond)
		require.False(t, f.take(l, charge))
		time.Sleep(time.Microsecond)
		assert.True(t, f.take(l, charge))
	})
}

func TestHeldUnitsAreUsedWhileRedisIsDown(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.PerSecond(1000))
		l := f.lease()
		f.takeFor(l, limit, time.Second, every(2*time.Millisecond))
		f.redis.fail(errors.New("gone"))
		synctest.Wait()
		used, failed := 0, 0
		for range 200 {
			_, err := l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: limit})
			if err == nil {
				used++
			} else {
				failed++
				assert.ErrorContains(t, err, "gone")
			}
		}
		assert.Greater(t, used, 10)
		assert.Greater(t, failed, 90)
		f.redis.fail(nil)
		time.Sleep(100 * time.Millisecond)
		_, _ = l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: limit}) // starts a probe
		time.Sleep(10 * time.Millisecond)
		_, err := l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: limit})
		assert.NoError(t, err, "it recovers")
	})
}

// The first calls ask Redis themselves: as with a Store, their charges stay although they were canceled.
func TestACanceledCallTakesNothingFromARefill(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.redis.setRTT(50 * time.Millisecond)
		limit := f.slow(1000)
		l, _ := f.leaseBy(time.Second)
		require.NoError(t, l.Ping(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := l.Take(ctx, nil, quota.Charge{Key: "key", Limit: limit})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		assert.GreaterOrEqual(t, f.redis.remaining("key", limit), int64(1000-3-2),
			"the first three asked Redis themselves, and refunds are rounded down")
	})
}

func TestAnIdleLeaseHoldsNothingAndSendsNothing(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.PerSecond(1000))
		l := f.lease()
		const keys = 2000
		var before int64
		var growth []int64 // in each wave
		for wave := range 5 {
			callers(keys, 6, func(caller, _ int) {
				_, err := l.Take(t.Context(), nil, quota.Charge{Key: fmt.Sprint(wave, caller), Limit: limit})
				assert.NoError(t, err)
			})
			time.Sleep(time.Second)
			f.redis.forget()
			growth = append(growth, heap()-before)
			before += growth[wave]
		}
		// Other goroutines may allocate in one wave.
		assert.Less(t, slices.Min(growth[1:]), int64(keys*100), "a leased Key takes some hundred bytes")
		calls := f.redis.roundTrips()
		time.Sleep(time.Hour)
		assert.Equal(t, calls, f.redis.roundTrips())
		runtime.KeepAlive(l)
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// callers starts concurrent callers, each of which makes so many calls one after the other.
func callers(n, calls int, call func(caller, i int)) {
	var all sync.WaitGroup
	for caller := range n {
		all.Go(func() {
			for i := range calls {
				call(caller, i)
			}
		})
	}
	all.Wait()
}

func TestARarelyUsedKeyCostsWhatItsStoreCosts(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.PerSecond(1000))
		l := f.lease()
		const uses = 2000 // of one key; several keys may share a useCount
		for range uses {
			require.True(t, f.take(l, quota.Charge{Key: "key", Limit: limit}))
			time.Sleep(42 * time.Millisecond) // three uses within 125 ms
		}
		time.Sleep(time.Second)
		assert.Equal(t, uses, f.redis.roundTrips())
		assert.EqualValues(t, 1000, f.redis.remaining("key", limit))
	})
}

func TestLeasesOfManyKeysShareRoundTrips(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.PerSecond(1_000_000))
		l := f.lease()
		const keys, uses = 1000, 100
		callers(64, keys*uses/64, func(caller, i int) {
			_, err := l.Take(t.Context(), nil, quota.Charge{Key: fmt.Sprint(rand.N(keys)), Limit: limit})
			assert.NoError(t, err)
		})
		assert.LessOrEqual(t, f.redis.roundTrips(), keys*uses/50)
	})
}

func TestManyNewKeysAtOnceDoNotFail(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := f.redis.limit(quota.PerSecond(1000))
		l := f.lease()
		callers(3000, 5, func(caller, i int) {
			ds, err := l.Take(t.Context(), nil, quota.Charge{Key: fmt.Sprint(caller, i), Limit: limit})
			if assert.NoError(t, err) {
				assert.True(t, ds[0].Allowed)
			}
		})
	})
}

// If units that have drained in Redis were given back, others could use them a second time, and the bound
// would not hold.
func TestEveryAlgorithmIsLeasedWithinItsBound(t *testing.T) {
	for name, algorithm := range map[string]quota.Algorithm{
		"token bucket": quota.TokenBucket, "leaky bucket": quota.LeakyBucket, "fixed window": quota.FixedWindow,
		"sliding window": quota.SlidingWindow, "sliding log": quota.SlidingLog,
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *leaseFleet) {
				limit := f.redis.limit(quota.Policy{Quota: 100, Window: time.Second, Algorithm: algorithm})
				f.each(4, func(_ int, l *redisstore.Lease) { f.takeFor(l, limit, 10*time.Second, upTo(10*time.Millisecond)) })
				f.within(200, 100, late)
				assert.GreaterOrEqual(t, len(f.uses), 800)
			})
		})
	}
}

func TestAfterCloseNothingIsInFlight(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.redis.setRTT(40 * time.Millisecond)
		limit := f.slow(1000)
		for pause := range 30 {
			l, _ := f.leaseBy(time.Second)
			require.NoError(t, l.Ping(t.Context()))
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { f.take(l, quota.Charge{Key: "key", Limit: limit}) })
			}
			all.Wait()
			time.Sleep(time.Duration(pause) * 10 * time.Millisecond)
			require.NoError(t, l.Close(t.Context()))
			calls := f.redis.roundTrips()
			time.Sleep(time.Second)
			require.Equal(t, calls, f.redis.roundTrips(), "closed after %d0 ms", pause)
		}
	})
}
