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
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/testserver"
)

func TestTheBurstGoesAtOnceThenTheLimitHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 3))
		tl.goes()
		tl.goes()
		tl.goes()
		tl.waits(100 * ms)
		tl.at(99 * ms)
		tl.waits(1 * ms)
		tl.at(100 * ms)
		tl.goes()
		tl.waits(100 * ms)
		tl.at(1000 * ms)
		tl.goes()
		tl.goes()
		tl.goes()
		tl.waits(100 * ms)
	})
}

// Nothing else limits the job; two requests are never closer than the rate allows.
func TestAnUnlimitedJobIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport(), Pacer: pace.PerHost(10, 1)}}
		start := time.Now()
		var workers sync.WaitGroup
		for range 5 {
			workers.Go(func() {
				for range 20 {
					resp, err := client.Get(srv.URL)
					if assert.NoError(t, err) {
						resp.Body.Close()
					}
				}
			})
		}
		workers.Wait()
		assert.Equal(t, 9900*ms, time.Since(start))
		log := srv.Log()
		require.Len(t, log, 100)
		for i := range log[1:] {
			assert.GreaterOrEqual(t, log[i+1].Arrived.Sub(log[i].Arrived), 100*ms)
		}
	})
}

func TestTheLineIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 1))
		tl.goes()
		b, c, d := tl.joins(), tl.joins(), tl.joins()
		tl.waits(400 * ms)
		tl.at(150 * ms)
		tl.waits(250 * ms)
		tl.wg.Wait()
		tl.admittedAt(100*ms, b)
		tl.admittedAt(200*ms, c)
		tl.admittedAt(300*ms, d)
		tl.waits(100 * ms)
	})
}

func TestACancelledWaitersTokenGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 1))
		tl.goes()
		b, c, d, e := tl.joins(), tl.joins(), tl.joins(), tl.joins()

		tl.at(50 * ms)
		c.cancel(errGone) // from the middle: d and e move up
		synctest.Wait()
		tl.waits(350 * ms)

		tl.at(60 * ms)
		b.cancel(nil) // from the front: d gets the token
		synctest.Wait()
		tl.waits(240 * ms)

		tl.wg.Wait()
		tl.admittedAt(100*ms, d)
		tl.admittedAt(200*ms, e)
		assert.Equal(t, 50*ms, c.at)
		assert.ErrorIs(t, c.err, context.Canceled)
		assert.ErrorIs(t, c.err, errGone)
		assert.Equal(t, context.Canceled, b.err)
		tl.waits(100 * ms)
	})
}

func TestAnAbandonedLineTakesNoTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 2))
		tl.goes()
		tl.goes()
		b, c := tl.joins(), tl.joins()
		tl.at(50 * ms)
		b.cancel(nil)
		c.cancel(nil)
		tl.wg.Wait()
		tl.waits(50 * ms)
		tl.at(100 * ms)
		tl.goes()
		tl.waits(100 * ms)
		tl.at(300 * ms)
		tl.goes()
		tl.goes()
		tl.waits(100 * ms)
	})
}

func TestATokenForALeavingWaiterGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := pace.PerHost(10, 1)
		tl := newTimeline(t, pacer)
		tl.goes()
		b, c := tl.joins(), tl.joins()
		tl.at(99 * ms)
		pacer.TickAt("http://example.com", tl.start.Add(100*ms), func() { b.cancel(nil) })
		tl.wg.Wait()
		assert.Equal(t, context.Canceled, b.err)
		tl.admittedAt(99*ms, c)
	})
}

func TestATooLongWaitIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 1))
		tl.goes()
		tl.joins()
		tl.joins()

		err := tl.pacer.WaitAtMost(get(), 299*ms)
		assert.Equal(t, &heed.OverdueError{Key: "http://example.com", Wait: 300 * ms, Left: 299 * ms}, err)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)

		soon, cancel := context.WithTimeout(t.Context(), 299*ms)
		defer cancel()
		for _, most := range []time.Duration{299 * ms, time.Hour} { // a deadline as early as most is the one named
			err = tl.pacer.WaitAtMost(request(soon, "http://example.com"), most)
			assert.Equal(
				t,
				&heed.OverdueError{Key: "http://example.com", Wait: 300 * ms, Left: 299 * ms, Deadline: true},
				err,
			)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.Zero(t, time.Since(tl.start), "no time passed")

		require.NoError(t, tl.pacer.WaitAtMost(get(), 300*ms), "a wait of exactly most is allowed")
		assert.Equal(t, 300*ms, time.Since(tl.start))
		tl.wg.Wait()
	})
}

func TestAdmissionMustComeBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 1))
		tl.goes()
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		overdueError(t, tl.pacer.Wait(request(ctx, "http://example.com")))
		assert.Zero(t, time.Since(tl.start))

		ctx, cancel = context.WithTimeout(t.Context(), 100*ms+1)
		defer cancel()
		require.NoError(t, tl.pacer.Wait(request(ctx, "http://example.com")))
		assert.Equal(t, 100*ms, time.Since(tl.start))
	})
}

func TestAnEndedContextTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pacer := range []heed.Pacer{pace.PerHost(10, 1), pace.With(rate.NewLimiter(10, 1))} {
			tl := newTimeline(t, pacer)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errGone)
			err := tl.pacer.Wait(request(ctx, "http://example.com"))
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, errGone)
			tl.goes()
		}
	})
}

func TestANegativeBoundAllowsNoWait(t *testing.T) {
	pacer := pace.PerHost(hourly, 1)
	require.NoError(t, pacer.WaitAtMost(get(), -time.Hour))
	assert.Zero(t, overdueError(t, pacer.WaitAtMost(get(), -time.Hour)).Left)
}

func TestAnUnusedTokenGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 1))
		tl.goes()
		tl.at(30 * ms)
		tl.givesBack() // 0.3 tokens and 1 are 1, the burst
		tl.goes()
		tl.waits(100 * ms)

		b, c := tl.joins(), tl.joins()
		tl.at(50 * ms)
		tl.givesBack()
		tl.admittedAt(50*ms, b)
		tl.wg.Wait()
		tl.admittedAt(150*ms, c) // not at 130: 0.2 tokens and 1 were 1
	})
}

func TestReturnedTokensNeverExceedTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 2))
		for range 10 {
			tl.givesBack() // of an unknown host
		}
		tl.goes()
		for range 10 {
			tl.givesBack()
		}
		tl.goes()
		tl.goes()
		tl.waits(100 * ms)
	})
}

func TestASentAttemptReturnsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(10, 1))
		tl.goes()
		tl.pacer.Observe(heed.Attempt{Request: get(), Response: &http.Response{StatusCode: 429}})
		tl.pacer.Observe(heed.Attempt{Request: get(), Err: errGone})
		tl.waits(100 * ms)
	})
}

func TestAnHourAdmits36000AndTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 7
		pacer := pace.PerHost(10, burst)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var (
			sent atomic.Int64
			wg   sync.WaitGroup
		)
		for range 50 {
			wg.Go(func() {
				for pacer.Wait(request(ctx, "http://example.com/")) == nil {
					sent.Add(1)
				}
			})
		}
		wg.Wait()
		assert.InDelta(t, 36_000+burst, sent.Load(), 1)
	})
}

func TestALateTimerLosesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := pace.PerHost(10, 1)
		tl := newTimeline(t, pacer)
		tl.goes()
		for range 6 {
			tl.joins()
		}
		pacer.TickAt("http://example.com", tl.start.Add(450*ms), func() {})
		tl.waits(300 * ms) // 4 of the 6 went; the next one goes at 500 ms, 50 later
		tl.wg.Wait()
	})
}

// hourly is a limit whose tokens do not come back during a test.
const hourly = rate.Limit(1.0 / 3600)

func TestInvalidFieldsOfKeyedAreNamed(t *testing.T) {
	for want, pacer := range map[string]*pace.Keyed{
		"pace: Keyed.Limit is 0: it must be positive":        {},
		"pace: Keyed.Limit is -1: it must be positive":       pace.PerHost(-1, 1),
		"pace: Keyed.Limit is NaN: it must be positive":      pace.PerHost(rate.Limit(math.NaN()), 1),
		"pace: Keyed.Burst is -3: it must not be negative":   pace.PerHost(1, -3),
		"pace: Keyed.MaxKeys is -1: it must not be negative": {Limit: 1, MaxKeys: -1},
		"pace: Keyed.Limit is -Inf: it must be positive":     pace.PerHost(rate.Limit(math.Inf(-1)), 1),
		"pace: Keyed.Limit is -1e-300: it must be positive":  pace.PerHost(-1e-300, 0),
	} {
		assert.EqualError(t, pacer.Wait(get()), want)
		pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
	}
}

func TestABurstOfZeroIsOne(t *testing.T) {
	pacer := pace.PerHost(hourly, 0)
	require.NoError(t, pacer.WaitAtMost(get(), 0))
	overdueError(t, pacer.WaitAtMost(get(), 0))
}

func TestInfiniteLimitsAdmitEverything(t *testing.T) {
	for _, limit := range []rate.Limit{rate.Inf, rate.Limit(math.Inf(1))} {
		pacer := pace.PerHost(limit, 0)
		for range 1000 {
			require.NoError(t, pacer.WaitAtMost(get(), 0))
		}
	}
}

func TestATinyLimitNeitherHangsNorOverflows(t *testing.T) {
	pacer := pace.PerHost(math.SmallestNonzeroFloat64, 1)
	require.NoError(t, pacer.Wait(get()))
	err := pacer.Wait(get())
	assert.Equal(t, rate.InfDuration, overdueError(t, err).Wait)
	assert.Equal(t, rate.InfDuration, overdueError(t, err).Left)
	assert.ErrorContains(t, err, "http://example.com never admits this request")
}

func TestAnUndelayedRequestDoesNotAllocate(t *testing.T) {
	for name, pacer := range map[string]heed.Pacer{
		"PerHost": pace.PerHost(plenty, 1000),
		"With":    pace.With(rate.NewLimiter(plenty, 1000)),
	} {
		req, sent := get(), heed.Attempt{Request: get()}
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if pacer.Wait(req) != nil {
				panic("a wait")
			}
			pacer.Observe(sent)
		}), name)
	}
}

// Every token is used or returned, whenever requests are cancelled: in the end, exactly
// the time has passed that the used tokens need.
func TestNoTokenIsLostOrCreatedAmong64Goroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, burst, seconds = 1000, 10, 10
		pacer := pace.PerHost(limit, burst)
		start := time.Now()
		var (
			used atomic.Int64
			wg   sync.WaitGroup
		)
		for i := range 64 {
			wg.Go(func() {
				for n := i; time.Since(start) < seconds*time.Second; n++ {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n%80+30)*ms)
					if n%3 == 0 {
						time.AfterFunc(time.Duration(n%37)*ms, cancel)
					}
					req := request(ctx, "http://example.com/")
					switch err := pacer.Wait(req); {
					case err != nil:
						time.Sleep(ms)
					case n%5 == 0:
						pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
						time.Sleep(ms)
					default:
						used.Add(1)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		assert.InDelta(t, limit*seconds+burst, used.Load(), limit*0.08, "the last requests end up to 80 ms later")
	})
}

func TestGoroutinesShareOneBurstExactly(t *testing.T) {
	const burst = 1000
	pacer := pace.PerHost(1e-6, burst)
	var (
		sent atomic.Int64
		wg   sync.WaitGroup
	)
	for range 64 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%10 == 9 { // joins the line, if there is one, and leaves it
					go cancel()
				}
				most := time.Duration(0)
				if i%10 == 9 {
					most = 1000 * time.Hour * 24
				}
				if pacer.WaitAtMost(request(ctx, "http://example.com/"), most) == nil {
					sent.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, burst, sent.Load())
}

func TestAnEmptiedLineStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(1, 1))
		tl.goes()
		b := tl.joins()
		b.cancel(nil)
		synctest.Wait()
		for range 3 {
			c := tl.joins()
			tl.waits(2 * time.Second)
			c.cancel(nil)
			synctest.Wait()
			tl.waits(1 * time.Second)
		}
	})
}

// Tests use a client in a global variable like this.
func TestAPacerWorksInSeveralBubblesAndOutside(t *testing.T) {
	pacer := pace.PerHost(1000, 1)
	use := func(t *testing.T) {
		for range 3 {
			require.NoError(t, pacer.WaitAtMost(get(), time.Minute))
		}
	}
	synctest.Test(t, use)
	synctest.Test(t, use)
	use(t)
}
