package pace_test

import (
	"context"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

// A foreign store does not say how long its calls take.
type foreign struct{ quota.Reserver }

func charge(t *testing.T, key string, p quota.Policy) quota.Charge {
	limit, err := p.Compile()
	require.NoError(t, err)
	return quota.Charge{Key: key, Limit: limit}
}

// left returns how many units of p a store has left for requests without a key.
func left(t *testing.T, store quota.Peeker, p quota.Policy) int64 {
	d, err := store.Peek(t.Context(), nil, charge(t, "shared", p))
	require.NoError(t, err)
	return d[0].Remaining
}

func TestWithoutTheStoreEachProcessUsesItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var degraded []error
		store := new(store)
		tl := newTimeline(t, &pace.Shared{
			Store:     store,
			Policies:  tenPerSecond(4),
			Processes: 2,
			Degraded:  func(err error) { degraded = append(degraded, err) },
		})
		tl.goes()
		store.fails.Store(true)
		tl.goes()          // one is left of a burst of 2 of 4
		tl.waits(200 * ms) // at 5 of 10 per second
		require.Len(t, degraded, 1)
		assert.EqualError(t, degraded[0], "pace: Shared.Store: connection refused")
		assert.ErrorIs(t, degraded[0], errStore)

		tl.at(1 * time.Second)
		tl.goes()
		store.fails.Store(false)
		tl.at(2 * time.Second)
		for range 4 {
			tl.goes()
		}
		tl.waits(100 * ms)
		assert.Len(t, degraded, 2)
	})
}

// A Store that is far away is used like any other, by one process or several, before and after a
// failure.
func TestAFarStoreCountsEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := quota.PerHour(6000)
		store := &store{within: 100 * ms}
		store.slow.Store(int64(80 * ms))
		var pacers []*pace.Shared
		for range 2 {
			pacers = append(pacers, &pace.Shared{Store: store, Policies: []quota.Policy{policy}})
		}
		send := func(n int) {
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() { assert.NoError(t, pacers[i%2].WaitAtMost(get(), 0)) })
			}
			all.Wait()
		}
		start := time.Now()
		send(5000)
		assert.Equal(t, 80*ms, time.Since(start))
		assert.EqualValues(t, 1000, left(t, store, policy))

		store.fails.Store(true)
		send(100)
		assert.EqualValues(t, 1000, left(t, store, policy))
		store.fails.Store(false)
		start = time.Now()
		send(100) // the first ones of each process charge what the Store does not know
		assert.Equal(t, 160*ms, time.Since(start))
		assert.EqualValues(t, 800, left(t, store, policy))
	})
}
func TestAnHourWithoutTheStoreAdmitsTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		store.fails.Store(true)
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(6), Processes: 3}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		sent := 0
		for req := request(ctx, "http://example.com/"); pacer.Wait(req) == nil; sent++ {
			pacer.Observe(heed.Attempt{Request: req})
		}
		assert.InDelta(t, 12_000+2, sent, 1)
	})
}

func TestACostAboveTheBurstOfAShareBecomesDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		store.fails.Store(true)
		pacer := &pace.Shared{
			Store: store, Policies: tenPerSecond(10), Processes: 5,
			Cost: func(*http.Request, string) int64 { return 10 },
		}
		start := time.Now()
		require.NoError(t, pacer.WaitAtMost(get(), 0)) // 2 are available, 8 become debt
		require.NoError(t, pacer.Wait(get()))
		assert.Equal(t, 5*time.Second, time.Since(start), "10 at 2 per second")
	})
}

// A Store of unknown kind may hang, whatever its context says, and may come back.
func TestAHangingStoreDelaysRequestsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var degraded []error
		store := new(store)
		policy := quota.Policy{Quota: 1000, Window: 1000 * time.Hour}
		pacer := &pace.Shared{
			Store: foreign{store}, Policies: []quota.Policy{policy},
			Degraded: func(err error) { degraded = append(degraded, err) },
		}
		require.NoError(t, pacer.WaitAtMost(get(), 0))
		assert.EqualValues(t, 1, store.asked.Load(), "a Store is not probed before it fails")
		release := store.hang()
		start := time.Now()
		require.NoError(t, pacer.WaitAtMost(get(), time.Minute))
		assert.Equal(t, time.Second, time.Since(start))
		require.Len(t, degraded, 1)
		assert.EqualError(t, degraded[0], "pace: Shared.Store: the Store did not answer within 1s")

		for range 100 {
			time.Sleep(time.Second)
			before := time.Now()
			require.NoError(t, pacer.WaitAtMost(get(), 0))
			require.Zero(t, time.Since(before), "later requests do not wait for the Store")
		}
		assert.EqualValues(t, 1+1+16, store.asked.Load(), "the request, and few probes, however long it hangs")
		assert.Len(t, degraded, 1+100)
		release()
		synctest.Wait()
		assert.EqualValues(t, 999, left(t, store, policy), "a late reservation is given back")
		require.NoError(t, pacer.WaitAtMost(get(), 0))
		assert.EqualValues(t, 1000-1-101-1, left(t, store, policy), "and the Store is used again, and told of the others")
		assert.Len(t, degraded, 1+100)
	})
}

func TestAFailedStoreIsProbedInTheBackground(t *testing.T) {
	for _, fails := range []func(*store) *atomic.Bool{
		func(s *store) *atomic.Bool { return &s.fails },
		func(s *store) *atomic.Bool { return &s.loses },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := new(store)
			policy := quota.Policy{Quota: 1000, Window: 1000 * time.Hour}
			pacer := &pace.Shared{Store: foreign{store}, Policies: []quota.Policy{policy}}
			fails(store).Store(true)
			for range 600 {
				require.NoError(t, pacer.WaitAtMost(get(), 0))
				time.Sleep(100 * ms)
			}
			assert.Greater(t, store.asked.Load(), int64(50), "about one probe each second, or more")
			fails(store).Store(false)
			time.Sleep(2 * time.Second) // for a probe in flight
			require.NoError(t, pacer.WaitAtMost(get(), 0))
			synctest.Wait()
			require.NoError(t, pacer.WaitAtMost(get(), 0))
			assert.EqualValues(t, 1000-602, left(t, store, policy))
		})
	}
}

// Two requests at once cost no second burst, though the share knows of the first one late.
func TestTheShareKnowsWhatALateAnswerTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		tl := newTimeline(t, &pace.Shared{Store: store, Policies: tenPerSecond(1)})
		store.late.Store(int64(40 * ms))
		require.NoError(t, tl.pacer.Wait(get()))
		store.late.Store(0)
		require.NoError(t, tl.pacer.Wait(get()))
		require.Equal(t, 100*ms, time.Since(tl.start))
		store.fails.Store(true)
		tl.waits(140 * ms) // at 10 per second since 40 ms
	})
}

func TestAStoreInMemoryCostsNothingExtra(t *testing.T) {
	allocs := func(store quota.Reserver) float64 {
		pacer := &pace.Shared{Store: store, Policies: []quota.Policy{quota.PerSecond(1e6)}}
		req := get()
		return testing.AllocsPerRun(100, func() {
			require.NoError(t, pacer.WaitAtMost(req, 0))
			pacer.Observe(heed.Attempt{Request: req})
		})
	}
	assert.Less(t, allocs(new(quota.Memory)), allocs(foreign{new(quota.Memory)})/3) // 5 of 23
}

func TestACancelledCallerLeavesTheStoreInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		store.slow.Store(int64(40 * ms))
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(1), Degraded: func(err error) { t.Error(err) }}
		ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
		defer cancel()
		start := time.Now()
		assert.Equal(t, context.DeadlineExceeded, pacer.Wait(request(ctx, "http://example.com/")))
		assert.Equal(t, 20*ms, time.Since(start))
		time.Sleep(100 * ms)
		assert.EqualValues(t, 1, store.settled.Load(), "a late reservation is given back")
		require.NoError(t, pacer.Wait(get()))
		assert.EqualValues(t, 3, store.asked.Load())

		ctx, cancel = context.WithTimeout(t.Context(), 20*ms)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, pacer.WaitAtMost(request(ctx, "http://example.com/"), 0))
		time.Sleep(100 * ms)
		assert.EqualValues(t, 1, store.settled.Load(), "a late refusal is not")
	})
}

func TestTheStoresLatencyIsPartOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &store{within: math.MaxInt64} // no bound at all
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(1)}
		require.NoError(t, pacer.Wait(get()))
		store.slow.Store(int64(40 * ms))
		start := time.Now()
		// At 40 ms the wait is another 60 ms: 100 in total.
		err := pacer.WaitAtMost(get(), 90*ms)
		assert.Equal(t, 60*ms, overdueError(t, err).Wait)
		assert.Equal(t, 50*ms, overdueError(t, err).Left)
		assert.EqualValues(t, 1, store.settled.Load())
		assert.Less(t, time.Since(start), 90*ms)
	})
}

func TestErrorsOfTheStoreAreReportedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int64
		store := new(store)
		store.fails.Store(true)
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(100), Degraded: func(error) { reports.Add(1) }}
		for range 10 {
			for range 5 {
				go func() { assert.NoError(t, pacer.WaitAtMost(get(), 0)) }()
			}
			time.Sleep(500 * ms)
		}
		assert.EqualValues(t, 5, reports.Load())
	})
}

// An invalid charge is the caller's mistake: the Store works.
func TestAChargeThatTheStoreRejectsIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := &quota.ChargeError{Field: "N", Reason: "is too large"}
		store := &rejecting{err: fault}
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(1), Degraded: func(err error) { t.Error(err) }}
		for range 3 {
			assert.ErrorIs(t, pacer.Wait(get()), fault)
		}
		assert.Equal(t, 3, store.asked)
	})
}

// A rejecting store returns err for each reservation.
type rejecting struct {
	quota.Reserver
	err   error
	asked int
}

func (r *rejecting) Reserve(context.Context, time.Duration, ...quota.Charge) (
	wait time.Duration, at time.Time, ok bool, err error,
) {
	r.asked++
	return 0, time.Time{}, false, r.err
}
