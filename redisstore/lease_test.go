package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A leaseFleet is processes that lease from one Redis, which is a Memory behind a wire.
type leaseFleet struct {
	t      *testing.T
	memory *redisstore.FakeRedis
	uses   []time.Duration // of units, since start
	start  time.Time
	mu     sync.Mutex // guards uses
}

func newLeaseFleet(t *testing.T) *leaseFleet {
	return &leaseFleet{t: t, memory: &redisstore.FakeRedis{RTT: time.Millisecond}, start: time.Now()}
}

// inFleet plays in a bubble.
func inFleet(t *testing.T, play func(t *testing.T, f *leaseFleet)) {
	synctest.Test(t, func(t *testing.T) { play(t, newLeaseFleet(t)) })
}

// each has so many processes, each with a Lease of its own, do what process does.
func (f *leaseFleet) each(n int, process func(i int, l *redisstore.Lease)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { process(i, f.lease(0)) })
	}
	all.Wait()
}

func (f *leaseFleet) lease(most int64) *redisstore.Lease {
	l := redisstore.LeaseOf(f.memory, most)
	f.t.Cleanup(func() {
		assert.NoError(f.t, l.Close(context.Background()))
		time.Sleep(time.Second)
	})
	return l
}

// use notes that a unit is used now.
func (f *leaseFleet) use() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses = append(f.uses, time.Since(f.start))
}

// within checks that every stretch of time saw no more uses than a bucket of so many a
// second and burst lets through in it and late more.
func (f *leaseFleet) within(burst, perSecond int, late time.Duration) {
	f.t.Helper()
	p := quota.Policy{Quota: int64(perSecond), Window: time.Second, Burst: int64(burst)}
	require.LessOrEqual(f.t, lateness(f.uses, p), late)
}

func compiled(t *testing.T, p quota.Policy) *quota.Limit {
	t.Helper()
	l, err := p.Compile()
	require.NoError(t, err)
	return l
}

// slow is a Limit of which nothing comes back while a test lasts.
func slow(t *testing.T, burst int64) *quota.Limit {
	return compiled(t, quota.Policy{Quota: 1, Window: time.Hour, Burst: burst})
}

// takeAll takes n units, one by one, which there are.
func (f *leaseFleet) takeAll(l *redisstore.Lease, limit *quota.Limit, n int) {
	f.t.Helper()
	for range n {
		require.True(f.t, f.take(l, quota.Charge{Key: "key", Limit: limit}))
	}
}

// takeFor asks for units until end, and uses what it gets, with a pause between.
func (f *leaseFleet) takeFor(l *redisstore.Lease, limit *quota.Limit, end time.Duration, pause func() time.Duration) (used int) {
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

// lasting is for how long a fleet is watched.
var lasting = stated(30*time.Second, 10*time.Second)

func TestAFleetOfLeasesKeepsToItsBoundAndUsesIt(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.Policy{Quota: 100, Window: time.Second, Burst: 20})
		f.each(10, func(_ int, l *redisstore.Lease) { f.takeFor(l, limit, lasting, upTo(20*time.Millisecond)) })
		f.within(20, 100, late)
		given := 20 + int(lasting.Seconds()*100)
		assert.LessOrEqual(t, len(f.uses), given, "since the start, no late")
		assert.GreaterOrEqual(t, len(f.uses), given*98/100)
	})
}

func TestALeaseAsksSeldom(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.PerSecond(1000))
		used := f.takeFor(f.lease(0), limit, 10*time.Second, every(2*time.Millisecond))
		assert.GreaterOrEqual(t, used, 4900, "none is denied, and nearly none waits for Redis")
		assert.LessOrEqual(t, f.memory.Calls(), used/20)
	})
}

// A process in a tight loop takes whatever is free. Who is denied meanwhile has units
// taken ahead, and finds them when he comes back as he was told.
func TestWhoAsksLittleIsNotStarvedByWhoAsksMuch(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.Policy{Quota: 100, Window: time.Second, Burst: 10})
		var all sync.WaitGroup
		all.Go(func() { f.takeFor(f.lease(0), limit, lasting, every(time.Millisecond/2)) })
		for range 9 {
			all.Go(func() {
				l := f.lease(0)
				for time.Since(f.start) < lasting {
					asked := time.Now()
					f.obey(l, quota.Charge{Key: "key", Limit: limit})
					assert.Less(t, time.Since(asked), 500*time.Millisecond)
					time.Sleep(rand.N(400 * time.Millisecond)) // half of what is fair
				}
			})
		}
		all.Wait()
		f.within(10, 100, late)
		assert.GreaterOrEqual(t, len(f.uses), int(lasting.Seconds()*100)*85/100, "little of what is taken ahead for those who seldom come is lost")
	})
}

// obey takes a unit, coming back when it is told.
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

func TestWhoReservesLittleIsNotStarvedByWhoReservesMuch(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.Policy{Quota: 100, Window: time.Second, Burst: 10})
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
		greedy := f.lease(0)
		for range 16 {
			all.Go(func() { reserve(greedy, 0) })
		}
		for range 9 {
			all.Go(func() { reserve(f.lease(0), rand.N(400*time.Millisecond)) })
		}
		all.Wait()
		f.within(10, 100, late)
		assert.GreaterOrEqual(t, len(f.uses), int(lasting.Seconds()*100)*98/100)
	})
}

func TestGreedyLeasesShareAlike(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.Policy{Quota: 200, Window: time.Second, Burst: 20})
		used := make([]int, 10)
		f.each(len(used), func(i int, l *redisstore.Lease) {
			used[i] = f.takeFor(l, limit, lasting, upTo(time.Duration(i+1)*2*time.Millisecond))
		})
		assert.GreaterOrEqual(t, jain(used), 0.95, "%v", used)
	})
}

// jain is Jain's index of fairness: 1 if all are alike, 1/n if one has all.
func jain(used []int) float64 {
	var sum, squares float64
	for _, n := range used {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(used)) * squares)
}

func TestWhatIsHeldAndNotWantedGoesBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := slow(t, 100)
		l := f.lease(0)
		f.takeAll(l, limit, 40)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 60-1, f.memory.Remaining("key", limit), "what came back in a second is rounded up")
	})
}

func TestCloseGivesBackWhatIsHeld(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := slow(t, 100)
		l := f.lease(0)
		f.takeAll(l, limit, 20)
		require.Less(t, f.memory.Remaining("key", limit), int64(80), "some are held")
		require.NoError(t, l.Close(t.Context()))
		assert.EqualValues(t, 80-1, f.memory.Remaining("key", limit))
		_, err := l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: limit})
		assert.EqualError(t, err, "redisstore: Client is nil", "from then on the Store decides")
	})
}

func TestWhatGoesBackGoesBackOnceThoughTheAnswerIsLost(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := slow(t, 100)
		l := f.lease(0)
		f.takeAll(l, limit, 20)
		synctest.Wait()
		f.memory.LoseAnswers(3)
		require.NoError(t, l.Close(t.Context()))
		assert.EqualValues(t, 80-1, f.memory.Remaining("key", limit))
	})
}

func TestReservationsFromALeaseAreSpacedAsTheBucketIs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.Policy{Quota: 50, Window: time.Second, Burst: 5})
		l := f.lease(0)
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
		fast := compiled(t, quota.Policy{Quota: 50, Window: time.Second, Burst: 5})
		slow := compiled(t, quota.Policy{Quota: 100, Window: 10 * time.Second, Burst: 30})
		l := f.lease(0)
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
		assert.InDelta(t, 230, len(f.uses), 8)
	})
}

func TestADenialSaysWhenAndIsObeyedExactly(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.memory.RTT = 0
		limit := compiled(t, quota.Policy{Quota: 1, Window: time.Second, Burst: 10})
		l := f.lease(0)
		charge := quota.Charge{Key: "key", Limit: limit}
		f.takeAll(l, limit, 10)
		ds, err := l.Take(t.Context(), nil, charge)
		require.NoError(t, err)
		require.False(t, ds[0].Allowed)
		require.Equal(t, time.Second, ds[0].RetryAfter)
		calls := f.memory.Calls()
		for range 100 {
			require.False(t, f.take(l, charge))
		}
		assert.Equal(t, calls, f.memory.Calls(), "Redis is not asked what is known")
		time.Sleep(time.Second - time.Microsecond)
		require.False(t, f.take(l, charge))
		time.Sleep(time.Microsecond)
		assert.True(t, f.take(l, charge))
	})
}

func TestWhileRedisIsGoneWhatIsHeldIsUsed(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.PerSecond(1000))
		l := f.lease(0)
		f.takeFor(l, limit, time.Second, every(2*time.Millisecond))
		f.memory.Down(errors.New("gone"))
		synctest.Wait()
		used, failed := 0, 0
		for range 200 {
			_, err := l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: limit})
			if err == nil {
				used++
			} else {
				failed++
				assert.EqualError(t, err, "gone")
			}
		}
		assert.Greater(t, used, 10)
		assert.Greater(t, failed, 90)
		f.memory.Down(nil)
		_, err := l.Take(t.Context(), nil, quota.Charge{Key: "key", Limit: limit})
		assert.NoError(t, err, "and it recovers alone")
	})
}

func TestACallerWhoLeavesTakesNothing(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.memory.RTT = 50 * time.Millisecond
		limit := slow(t, 100)
		l := f.lease(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := l.Take(ctx, nil, quota.Charge{Key: "key", Limit: limit})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		assert.EqualValues(t, 100, f.memory.Remaining("key", limit))
	})
}

func TestAnIdleLeaseKeepsNothingAndAsksNothing(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		limit := compiled(t, quota.PerSecond(1000))
		l := f.lease(0)
		f.takeFor(l, limit, time.Second, every(5*time.Millisecond))
		time.Sleep(time.Second)
		assert.Zero(t, redisstore.HoldingsOf(l))
		calls := f.memory.Calls()
		time.Sleep(time.Hour)
		assert.Equal(t, calls, f.memory.Calls())
	})
}

// The bound would not hold if units went back whose time is long over: what they owed
// has drained, and others would be given it a second time.
func TestEveryAlgorithmIsLeasedWithinItsBound(t *testing.T) {
	for name, algorithm := range map[string]quota.Algorithm{
		"token bucket": quota.TokenBucket, "leaky bucket": quota.LeakyBucket, "fixed window": quota.FixedWindow,
		"sliding window": quota.SlidingWindow, "sliding log": quota.SlidingLog,
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *leaseFleet) {
				limit := compiled(t, quota.Policy{Quota: 100, Window: time.Second, Algorithm: algorithm})
				f.each(4, func(_ int, l *redisstore.Lease) { f.takeFor(l, limit, 10*time.Second, upTo(10*time.Millisecond)) })
				f.within(200, 100, late)
				assert.GreaterOrEqual(t, len(f.uses), 800)
			})
		})
	}
}

func TestNothingIsUnderWayAnyMoreWhenCloseHasReturned(t *testing.T) {
	inFleet(t, func(t *testing.T, f *leaseFleet) {
		f.memory.RTT = 40 * time.Millisecond
		limit := slow(t, 1000)
		for pause := range 30 {
			l := f.lease(0)
			f.takeAll(l, limit, 8)
			time.Sleep(time.Duration(pause) * 10 * time.Millisecond)
			require.NoError(t, l.Close(t.Context()))
			calls := f.memory.Calls()
			time.Sleep(time.Second)
			require.Equal(t, calls, f.memory.Calls(), "closed after %d0 ms", pause)
		}
	})
}
