package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The Lease and its Store take turns, so that what else the machine does slows both down.
func TestALeaseIsFasterThanItsStore(t *testing.T) {
	testenv.NeedLong(t)
	for keys, least := range map[int]float64{1: 1.5, 1000: 5, 100_000: 0.9} {
		t.Run(fmt.Sprint(keys, " keys"), func(t *testing.T) {
			store := newStore(t, redistest.Shared(t))
			lease := &redisstore.Lease{Store: store}
			limit := compile(t, quota.Policy{Quota: 100_000_000, Window: 24 * time.Hour})
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("key ", i)
			}
			perSecond := func(s quota.Store) float64 {
				const lasting = 700 * time.Millisecond
				var calls atomic.Int64
				start := time.Now()
				callers(64, 1, func(_, _ int) {
					var dst [1]quota.Decision
					for n := int64(0); ; n++ {
						if time.Since(start) > lasting {
							calls.Add(n)
							return
						}
						c := quota.Charge{Key: names[rand.IntN(keys)], Limit: limit}
						ds, err := s.Take(ctx, dst[:0], c)
						if err != nil || !ds[0].Allowed {
							assert.Fail(t, "", "%v %v", err, ds)
						}
					}
				})
				return float64(calls.Load()) / time.Since(start).Seconds()
			}
			var ratios, alone, ahead []float64
			for range 9 {
				a, b := perSecond(store), perSecond(lease)
				ratios, alone, ahead = append(ratios, b/a), append(alone, a), append(ahead, b)
			}
			require.NoError(t, lease.Close(ctx))
			t.Logf("%.2f times as fast: %.0f/s, %.0f/s", median(ratios), median(alone), median(ahead))
			assert.GreaterOrEqual(t, median(ratios), least)
		})
	}
}

// Each client asks one of four processes at random, waits if it is denied, and asks again. Who waits alone is
// admitted; of several that wait for the same unit, only one is, with or without a Lease.
func TestWhoWaitsAloneIsNotDeniedAgain(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	limit := compile(t, quota.Policy{Quota: 400, Window: time.Second})
	for clients := 1; clients <= stated(16, 1); clients *= 4 {
		for _, leased := range []bool{false, true} {
			var stores [4]quota.Store
			for i := range stores {
				s := newStore(t, server)
				if stores[i] = s; leased {
					l := &redisstore.Lease{Store: s}
					defer l.Close(ctx)
					stores[i] = l
				}
			}
			var calls, denied, again atomic.Int64
			callers(clients, 1, func(_, _ int) {
				waited := false
				for start := time.Now(); time.Since(start) < stated(20*time.Second, time.Second); calls.Add(1) {
					c := quota.Charge{Key: fmt.Sprint(clients, leased), Limit: limit}
					ds, err := stores[rand.IntN(len(stores))].Take(ctx, nil, c)
					if !assert.NoError(t, err) {
						return
					}
					if !ds[0].Allowed {
						denied.Add(1)
					}
					if !ds[0].Allowed && waited {
						again.Add(1)
					}
					if waited = !ds[0].Allowed; ds[0].Allowed && rand.IntN(400) == 0 { // after a burst
						time.Sleep(time.Duration(clients) * rand.N(1600*ms))
					}
					time.Sleep(ds[0].RetryAfter)
				}
			})
			t.Logf("%d clients, leased: %v: of %d calls, %d were denied, of these %d again",
				clients, leased, calls.Load(), denied.Load(), again.Load())
			if clients == 1 {
				assert.LessOrEqual(t, again.Load(), denied.Load()/100)
			}
		}
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
