package pace_test

import (
	"context"
	"fmt"
	"slices"
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

// most returns the highest number of times in any one window: (t, t+window], or the
// windows of the clock.
func most(at []time.Time, window time.Duration, byTheClock bool) (n int) {
	first := 0
	for i := range at {
		for byTheClock && at[first].UnixNano()/int64(window) < at[i].UnixNano()/int64(window) ||
			at[i].Sub(at[first]) >= window {
			first++
		}
		n = max(n, i+1-first)
	}
	return n
}

// withoutStore returns the times at which n busy processes admit requests while their
// Store fails.
func withoutStore(t *testing.T, p quota.Policy, n int, during time.Duration) []time.Time {
	store := new(store)
	store.fails.Store(true)
	var pacers []*pace.Shared
	for range n {
		pacers = append(pacers, &pace.Shared{Store: store, Policies: []quota.Policy{p}, Processes: n})
		require.NoError(t, pacers[0].Check())
	}
	return runs(t, pacers, during)
}

// runs returns the times at which busy pacers admit requests.
func runs(t *testing.T, pacers []*pace.Shared, during time.Duration) (at []time.Time) {
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	for _, pacer := range pacers {
		all.Go(func() {
			for req := request(ctx, "http://example.com/"); pacer.Wait(req) == nil; {
				pacer.Observe(heed.Attempt{Request: req})
				mu.Lock()
				at = append(at, time.Now())
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// All processes together stay within the policy of one, and use the sum of their shares,
// rounded down. Shares of less than a unit have longer windows.
func TestSharesOfEveryAlgorithmKeepThePolicyTogether(t *testing.T) {
	const window, windows = 10 * time.Second, 16
	for _, q := range []int64{7, 100} {
		for _, p := range everyAlgorithm(q, window) {
			for _, n := range []int{1, 3, 50} {
				t.Run(fmt.Sprintf("%d %v by %d", q, p.Algorithm, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(window / 3)
						at := withoutStore(t, p, n, windows*window)
						used := float64(len(at)) / float64(q*windows)
						longer := (int64(n) + q - 1) / q // the windows for one unit each
						share := float64(n) * float64(max(1, q/int64(n))) / float64(q*longer)
						t.Logf("%.2f of the policy were used, %d in a window", used, most(at, window, false))
						limit, window := int(q*longer), time.Duration(longer)*window
						switch p.Algorithm {
						case quota.TokenBucket, quota.LeakyBucket:
							share = 1
							atOnce := max(n, int(q))
							if p.Algorithm == quota.LeakyBucket {
								atOnce = n
							}
							assert.LessOrEqual(t, most(at, window, false), atOnce+limit)
							assert.LessOrEqual(t, most(at, time.Millisecond, false), atOnce)
						case quota.FixedWindow:
							assert.LessOrEqual(t, most(at, window, true), limit)
						case quota.SlidingWindow:
							assert.LessOrEqual(t, most(at, window, false), 2*limit-1)
							share *= 0.5 // with few units, this algorithm admits no more in the long run
						case quota.SlidingLog:
							assert.LessOrEqual(t, most(at, window, false), limit)
						}
						assert.GreaterOrEqual(t, used, 0.93*share)
					})
				})
			}
		}
	}
}

func TestSharesOfACalendarDayKeepItTogether(t *testing.T) {
	for _, n := range []int{1, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			at := withoutStore(
				t, quota.Policy{Quota: 100, Calendar: quota.Day, Algorithm: quota.FixedWindow}, n,
				5*24*time.Hour,
			)
			assert.Len(t, at, 5*(100/n)*n)
			assert.Equal(t, 100/n*n, most(at, 24*time.Hour, true))
		})
	}
}

// A store in memory cannot fail, so Processes does not matter.
func TestAMemoryStoreIgnoresProcesses(t *testing.T) {
	for _, p := range everyAlgorithm(60, time.Minute) {
		for _, n := range []int{1, 3, 50} {
			synctest.Test(t, func(t *testing.T) {
				pacer := &pace.Shared{Store: new(quota.Memory), Policies: []quota.Policy{p}, Processes: n}
				at := runs(t, []*pace.Shared{pacer}, 10*time.Minute)
				assert.InDelta(t, 600, len(at), 60, p.Algorithm)
			})
		}
	}
}

// One process stays within the policy and uses it, however often its Store fails, except
// for requests that wait while the Store fails or recovers. A single worker has none.
func TestAFlappingStoreGivesNoSecondWindow(t *testing.T) {
	const window, q = 10 * time.Second, 40
	for _, p := range everyAlgorithm(q, window)[2:] {
		for _, workers := range []int{1, 8} {
			for _, phase := range []time.Duration{2300 * ms, 7100 * ms, 25900 * ms} {
				t.Run(fmt.Sprintf("%v, %d workers, %v", p.Algorithm, workers, phase), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						pacer := &pace.Shared{Store: new(store), Policies: []quota.Policy{p}}
						const phases = 24
						at := admissions(t, workers, phases*phase, phase, phase, pacer)
						limit := map[quota.Algorithm]int{
							quota.FixedWindow: q, quota.SlidingWindow: 2*q - 1, quota.SlidingLog: q,
						}[p.Algorithm]
						inAWindow := most(at, window, p.Algorithm == quota.FixedWindow)
						used := float64(len(at)) / (phases * phase.Seconds() / window.Seconds() * q)
						t.Logf("%d in a window, %.2f of the policy", inAWindow, used)
						if workers > 1 {
							limit += workers
						}
						assert.LessOrEqual(t, inAWindow, limit)
						assert.GreaterOrEqual(t, used, 0.8)
					})
				})
			}
		}
	}
}

// Each of several processes has its share once. What it took from the Store in this
// window is part of that.
func TestAFailingStoreLeavesTheRestOfASharesWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		policies := []quota.Policy{{Quota: 30, Window: time.Minute, Algorithm: quota.FixedWindow}}
		tl := newTimeline(t, &pace.Shared{Store: store, Policies: policies, Processes: 3})
		for range 4 {
			tl.goes()
		}
		store.fails.Store(true)
		for range 6 {
			tl.goes()
		}
		tl.waits(time.Minute)
		store.fails.Store(false)
		tl.at(1 * time.Second)
		for range 20 { // the Store's 30, without the 4 it gave and the 6 it did not know of
			tl.goes()
		}
		tl.waits(59 * time.Second)
	})
}

// A request that costs more than a share's window is admitted, and the next ones wait for
// as many windows as the cost takes.
func TestACostAboveASharesWindowIsOwedByWindow(t *testing.T) {
	for _, a := range []quota.Algorithm{quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog} {
		synctest.Test(t, func(t *testing.T) {
			store := new(store)
			store.fails.Store(true)
			pacer := &pace.Shared{
				Store: store, Processes: 5,
				Policies: []quota.Policy{{Quota: 10, Window: time.Second, Algorithm: a}},
			}
			start := time.Now()
			costly := request(pace.WithCost(t.Context(), "", 10), "http://example.com/")
			require.NoError(t, pacer.WaitAtMost(costly, 0))
			require.NoError(t, pacer.Wait(get()))
			want := 5.0 // 10 at 2 per second
			if a == quota.SlidingWindow {
				want = 9.5 // a full window counts for half of the next
			}
			assert.InDelta(t, want, time.Since(start).Seconds(), 1e-3, a)
		})
	}
}

// The table in the doc of Shared.Policies. The end of a minute is not part of it here:
// with that, a bucket has one more, all of its Burst and its Quota.
func TestRequestsAdmittedInAnyMinute(t *testing.T) {
	per := func(q int64, a quota.Algorithm) quota.Policy {
		return quota.Policy{Quota: q, Window: time.Minute, Algorithm: a}
	}
	for _, c := range []struct {
		policy        quota.Policy
		atOnce, admit int
	}{
		{per(60, quota.TokenBucket), 60, 119},
		{quota.Policy{Quota: 60, Window: time.Minute, Burst: 1}, 1, 60},
		{quota.Policy{Quota: 59, Window: time.Minute, Burst: 1}, 1, 59},
		{per(60, quota.LeakyBucket), 1, 60},
		{per(60, quota.FixedWindow), 60, 120},
		{per(60, quota.SlidingWindow), 60, 119},
		{per(60, quota.SlidingLog), 60, 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(59*time.Second + 999*ms) // of a minute by the clock, whose end is the worst start
			pacer := &pace.Shared{Store: new(quota.Memory), Policies: []quota.Policy{c.policy}}
			var sent atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					for req := request(ctx, "http://example.com/"); pacer.Wait(req) == nil; sent.Add(1) {
						pacer.Observe(heed.Attempt{Request: req})
					}
				})
			}
			time.Sleep(0)
			synctest.Wait()
			assert.EqualValues(t, c.atOnce, sent.Load(), c.policy)
			all.Wait()
			assert.EqualValues(t, c.admit, sent.Load(), c.policy)
		})
	}
}
