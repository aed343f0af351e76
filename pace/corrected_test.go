package pace_test

import (
	"net/http"
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

// The cookbook's tokens per minute: calls reserve 500 and use 300 of 2,000 a second.
func TestUnitsGivenBackReachThoseThatWait(t *testing.T) {
	const calls, reserved, used, perSecond = 30, 500, 300, 2000
	for _, burst := range []int64{500, 2000} {
		for _, settle := range []bool{false, true} {
			for _, s := range []quota.Reserver{new(quota.Memory), new(store)} {
				synctest.Test(t, func(t *testing.T) {
					pacer := &pace.Shared{
						Store:    s,
						Policies: []quota.Policy{{Quota: perSecond, Window: time.Second, Burst: burst}},
						Cost:     func(*http.Request, string) int64 { return reserved },
					}
					if settle {
						pacer.Settle = func(heed.Attempt, string) int64 { return used }
					}
					var (
						mu    sync.Mutex
						wg    sync.WaitGroup
						units int64
						start = time.Now()
					)
					for range calls {
						wg.Go(func() {
							req := get()
							require.NoError(t, pacer.Wait(req))
							mu.Lock()
							units += reserved
							most := burst + int64(perSecond*time.Since(start).Seconds())
							assert.LessOrEqual(t, units, most+1, "at %v", time.Since(start))
							mu.Unlock()
							time.Sleep(100 * ms)
							mu.Lock()
							units -= reserved - used
							mu.Unlock()
							pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200}})
							if !settle {
								pacer.Correct(req, used-reserved)
							}
						})
					}
					wg.Wait()
					ideal := time.Duration(calls * used * int64(time.Second) / perSecond)
					assert.LessOrEqual(t, time.Since(start), ideal*100/95)
				})
			}
		}
	}
}

// What was taken in addition is given back first; only the rest moves others forward.
func TestDebtIsPaidBeforeOthersMoveForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(1)}
		l := newTimeline(t, pacer)
		l.goes()
		b, c, d := l.joins(), l.joins(), l.joins()
		l.at(50 * ms)
		pacer.Correct(get(), 2)
		pacer.Correct(get(), -1)
		l.at(150 * ms)
		pacer.Correct(get(), -2)
		l.wg.Wait()
		l.admittedAt(100*ms, b)
		l.admittedAt(150*ms, c)
		l.admittedAt(200*ms, d)
		l.waits(100 * ms)
	})
}

// Each cost has its own line; what is given back moves all of them.
func TestUnitsGivenBackMoveEveryCostForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(5)}
		var wg sync.WaitGroup
		start := time.Now()
		for i, want := range []time.Duration{0, 100 * ms, 300 * ms, 400 * ms} {
			n := []int64{5, 1, 5, 1}[i]
			wg.Go(func() {
				require.NoError(t, pacer.Wait(request(pace.WithCost(t.Context(), "", n), "http://example.com/")))
				assert.Equal(t, want, time.Since(start), "call %d", i)
			})
			synctest.Wait()
		}
		time.Sleep(150 * ms)
		pacer.Correct(get(), -3) // but no further than to now
		wg.Wait()
	})
}

// Of several limits, all must have the units.
func TestUnitsGivenBackToSeveralLimits(t *testing.T) {
	for _, test := range []struct {
		second quota.Policy
		want   time.Duration // of the third request
	}{
		{quota.Policy{Name: "slower", Quota: 10, Window: time.Second, Burst: 20}, 0},
		{quota.Policy{Name: "faster", Quota: 20, Window: time.Second, Burst: 20}, 100 * ms},
		{quota.Policy{Name: "window", Quota: 50, Window: time.Second, Algorithm: quota.FixedWindow}, 200 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			pacer := &pace.Shared{
				Store: new(quota.Memory), Policies: append(tenPerSecond(1), test.second),
			}
			l := newTimeline(t, pacer)
			l.goes()
			l.joins()
			c := l.joins()
			pacer.Correct(get(), -2)
			l.wg.Wait()
			l.admittedAt(test.want, c)
		})
	}
}
