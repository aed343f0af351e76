package pace_test

import (
	"context"
	"net/http"
	"strconv"
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
		assert.ErrorIs(t, degraded[0], errStore)
		assert.EqualValues(t, 2, store.asked.Load(), "a Store that failed is left alone")

		tl.at(1 * time.Second)
		tl.goes()
		assert.EqualValues(t, 3, store.asked.Load(), "one probe a second")
		assert.Len(t, degraded, 2)

		store.fails.Store(false)
		tl.at(2 * time.Second)
		for range 4 {
			tl.goes()
		}
		tl.waits(100 * ms)
		assert.Len(t, degraded, 2)
	})
}

func TestOneRequestAtATimeProbesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		store.fails.Store(true)
		store.slow.Store(int64(40 * ms))
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(100)}
		require.NoError(t, pacer.Wait(get()))
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { assert.NoError(t, pacer.Wait(get())) })
		}
		wg.Wait()
		assert.EqualValues(t, 2, store.asked.Load())
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

func TestAHangingStoreDelaysRequestsAtMost50Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var degraded []error
		store := new(store)
		release := store.hang()
		requests := 0
		pacer := &pace.Shared{
			Store:    store,
			Policies: tenPerSecond(100),
			Key:      func(*http.Request) string { requests++; return strconv.Itoa(requests) },
			Degraded: func(err error) { degraded = append(degraded, err) },
		}
		start := time.Now()
		require.NoError(t, pacer.WaitAtMost(get(), time.Minute))
		assert.Equal(t, 50*ms, time.Since(start))
		require.NoError(t, pacer.WaitAtMost(get(), 0))
		assert.Equal(t, 50*ms, time.Since(start), "a second request does not wait for the Store")
		require.Len(t, degraded, 1)
		assert.EqualError(t, degraded[0], "pace: Shared.Store: did not answer within 50ms")

		// However long it hangs, few calls are left behind.
		for range 100 {
			time.Sleep(time.Second)
			require.NoError(t, pacer.WaitAtMost(get(), 0))
		}
		assert.EqualValues(t, 16, store.asked.Load())

		release()
		synctest.Wait()
		assert.EqualValues(t, 16, store.settled.Load(), "a late reservation is given back")
		time.Sleep(time.Second)
		require.NoError(t, pacer.WaitAtMost(get(), 0))
		assert.EqualValues(t, 17+16, store.asked.Load(), "and the Store is used again")
		d, err := store.Peek(t.Context(), nil, charge(t, strconv.Itoa(requests), tenPerSecond(100)[0]))
		require.NoError(t, err)
		assert.EqualValues(t, 99, d[0].Remaining)
	})
}

func charge(t *testing.T, key string, p quota.Policy) quota.Charge {
	limit, err := p.Compile()
	require.NoError(t, err)
	return quota.Charge{Key: key, Limit: limit}
}

func TestACancelledCallerDoesNotOpenTheBreaker(t *testing.T) {
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
	})
}

func TestAHangingStoreIsDetectedDespiteShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var degraded atomic.Int64
		store := new(store)
		release := store.hang()
		pacer := &pace.Shared{Store: store, Policies: tenPerSecond(100), Degraded: func(error) { degraded.Add(1) }}
		start := time.Now()
		wait := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 40*ms)
			defer cancel()
			return pacer.Wait(request(ctx, "http://example.com/"))
		}
		assert.Equal(t, context.DeadlineExceeded, wait(), "the hang is not detected yet")
		assert.Equal(t, 40*ms, time.Since(start))
		time.Sleep(10 * ms)
		synctest.Wait()
		assert.EqualValues(t, 1, degraded.Load())

		for range 60 { // a minute with one probe a second
			before := time.Now()
			require.NoError(t, wait())
			require.NoError(t, wait())
			require.Zero(t, time.Since(before), "the share is there at once")
			time.Sleep(time.Second + 100*ms)
		}
		assert.EqualValues(t, 60, degraded.Load(), "one error a probe")

		release()
		time.Sleep(time.Second)
		require.NoError(t, wait(), "it lets the Store be asked")
		synctest.Wait()
		asked := store.asked.Load()
		require.NoError(t, wait())
		assert.Greater(t, store.asked.Load(), asked, "the Store is used again")
	})
}

func TestTheStoresLatencyIsPartOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
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

func TestCallsThatFailAtOnceAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int64
		store := new(store)
		store.fails.Store(true)
		store.slow.Store(int64(40 * ms))
		pacer := &pace.Shared{
			Store: store, Policies: tenPerSecond(100), Degraded: func(error) { reports.Add(1) },
			Key: func(req *http.Request) string { return req.URL.Path },
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				assert.NoError(t, pacer.Wait(request(t.Context(), "http://example.com/"+strconv.Itoa(i))))
			})
		}
		wg.Wait()
		assert.EqualValues(t, 20, store.asked.Load())
		assert.EqualValues(t, 1, reports.Load())
	})
}
