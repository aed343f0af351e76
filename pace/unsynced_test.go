package pace_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

// admissions returns when pacers with so many workers each admitted requests, while the store
// works for up and fails for down, in turn.
func admissions(t *testing.T, workers int, all, up, down time.Duration, pacers ...*pace.Shared) []time.Time {
	ctx, cancel := context.WithTimeout(t.Context(), all)
	defer cancel()
	var (
		mu sync.Mutex
		at []time.Time
		wg sync.WaitGroup
	)
	for _, pacer := range pacers {
		for range workers {
			wg.Go(func() {
				for req := request(ctx, "http://example.com/"); pacer.Wait(req) == nil; {
					pacer.Observe(heed.Attempt{Request: req})
					mu.Lock()
					at = append(at, time.Now())
					mu.Unlock()
				}
			})
		}
	}
	store := pacers[0].Store.(*store)
	for end := time.Now().Add(all); time.Now().Before(end); {
		time.Sleep(up)
		store.fails.Store(true)
		time.Sleep(down)
		store.fails.Store(false)
	}
	wg.Wait()
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// excess returns by how much the number in the worst window exceeds 10 per second.
func excess(at []time.Time) float64 {
	most, least := 0.0, 0.0 // the least before
	for i, a := range at {
		due := 10 * a.Sub(at[0]).Seconds()
		least = min(least, float64(i)-due)
		most = max(most, float64(i+1)-due-least)
	}
	return most
}

func TestAnUnreliableStoreRaisesNoRate(t *testing.T) {
	for _, workers := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			pacer := &pace.Shared{Store: new(store), Policies: tenPerSecond(10)}
			at := admissions(t, workers, 1200*time.Second, 2*time.Second, 2*time.Second, pacer)
			racing := workers - 1 // in flight at the moment in which the Store fails or recovers
			assert.LessOrEqual(t, len(at), 12_010+racing)
			assert.GreaterOrEqual(t, len(at), 11_990, "the rate is not lowered")
			assert.LessOrEqual(t, excess(at), 10+float64(racing)+1e-6, "the burst, in any window")
		})
	}
}

func TestProcessesStayNearTheRateWithAnUnreliableStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			store  = new(store)
			pacers []*pace.Shared
		)
		for range 4 {
			pacers = append(pacers, &pace.Shared{Store: store, Policies: tenPerSecond(20), Processes: 4})
		}
		at := admissions(t, 2, 1200*time.Second, 2*time.Second, 2*time.Second, pacers...)
		t.Logf("%d admitted, at most %.2f beyond the rate", len(at), excess(at))
		assert.GreaterOrEqual(t, len(at), 12_020*95/100)
		assert.LessOrEqual(t, len(at), 12_020+300*20*3/4, "at most the idle shares of a burst each time")
	})
}

func TestAFailingStoreGivesNoSecondBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		tl := newTimeline(t, &pace.Shared{Store: store, Policies: tenPerSecond(10)})
		for range 10 {
			tl.goes()
		}
		store.fails.Store(true)
		tl.waits(100 * ms)
		tl.at(500 * ms)
		for range 5 {
			tl.goes()
		}
		tl.waits(100 * ms)
		store.fails.Store(false)
		tl.at(1 * time.Second)
		for range 5 { // the Store's 10, without the 5 that it knows of
			tl.goes()
		}
		tl.waits(100 * ms)
	})
}

func TestUnitsReturnedDuringAnOutageAreNotOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		tl := newTimeline(t, &pace.Shared{Store: store, Policies: []quota.Policy{quota.PerHour(3)}})
		tl.goes()
		store.fails.Store(true)
		req := get()
		require.NoError(t, tl.pacer.Wait(req))
		tl.pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
		store.fails.Store(false)
		tl.at(1 * time.Second)
		tl.goes()
		tl.goes()
		tl.waits(20*time.Minute - time.Second)
	})
}

func TestUnitsReturnedToTheStoreReturnToTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		tl := newTimeline(t, &pace.Shared{Store: store, Policies: tenPerSecond(2)})
		req := get()
		require.NoError(t, tl.pacer.Wait(req))
		tl.pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
		tl.goes()
		store.fails.Store(true)
		tl.goes()
		tl.waits(100 * ms)
	})
}

func TestATrueCostDuringAnOutageIsChargedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		tl := newTimeline(t, &pace.Shared{
			Store:    store,
			Policies: []quota.Policy{quota.PerHour(6)},
			Settle:   func(heed.Attempt, string) int64 { return 4 },
		})
		req := get()
		require.NoError(t, tl.pacer.Wait(req))
		store.fails.Store(true)
		tl.pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200}})
		store.fails.Store(false)
		tl.at(1 * time.Second)
		tl.goes()
		tl.goes()
		tl.waits(10*time.Minute - time.Second)
	})
}

func TestEarlierUseAboveTheShareDoesNotDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		tl := newTimeline(t, &pace.Shared{Store: store, Policies: tenPerSecond(10), Processes: 5})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for tl.pacer.Wait(request(ctx, "http://example.com/")) == nil { // all of 10 per second
		}
		store.fails.Store(true)
		require.NoError(t, tl.pacer.Wait(get()))
		assert.LessOrEqual(t, time.Since(tl.start), time.Minute+650*ms, "the first of 2 per second, and 150 ms")
	})
}

func TestADebtIsChargedBeforeNewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		key := "a"
		pacer := &pace.Shared{
			Store: store, Policies: []quota.Policy{quota.PerHour(10)},
			Key: func(*http.Request) string { return key },
		}
		store.fails.Store(true)
		for range 10 {
			require.NoError(t, pacer.WaitAtMost(get(), 0))
		}
		store.fails.Store(false)
		time.Sleep(time.Second)
		key = "b" // detects that the Store works again
		require.NoError(t, pacer.WaitAtMost(get(), 0))
		asked := store.asked.Load()
		key = "a"
		store.slow.Store(int64(10 * ms))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { overdueError(t, pacer.WaitAtMost(get(), 0)) })
		}
		wg.Wait()
		assert.Equal(t, asked+1+10, store.asked.Load(), "one charge for the debt, then all requests")
	})
}
