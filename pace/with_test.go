package pace_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

func TestWithSharesALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(10, 2)
		tl := newTimeline(t, pace.With(limiter))
		require.True(t, limiter.Allow())
		tl.goes()
		assert.False(t, limiter.Allow())
		tl.waits(100 * ms)
		tl.givesBack()
		assert.True(t, limiter.Allow(), "a returned token is available to all")
		assert.False(t, limiter.Allow())
	})
}

func TestWithKeepsItsPlaceAmongOtherReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(10, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		b, c := tl.joins(), tl.joins()
		assert.Equal(t, 200*ms, limiter.Reserve().Delay(), "the line counts as one")
		tl.waits(400 * ms)
		tl.wg.Wait()
		tl.admittedAt(100*ms, b)
		tl.admittedAt(300*ms, c)
	})
}

func TestATokenReturnedDuringOthersDebtIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(10, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		limiter.Reserve()
		limiter.Reserve()
		tl.waits(300 * ms)
		tl.givesBack()
		tl.waits(200 * ms)
	})
}

func TestAReturnedTokenGoesToTheFirstInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(10, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		b, c := tl.joins(), tl.joins()
		limiter.Reserve()
		limiter.Reserve()
		tl.at(50 * ms)
		tl.givesBack()
		tl.wg.Wait()
		tl.admittedAt(50*ms, b)
		tl.admittedAt(100*ms, c)
	})
}

func TestALateTimerCreatesNoTokensInASharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(10, 1)
		pacer := pace.With(limiter)
		tl := newTimeline(t, pacer)
		tl.goes()
		b, c := tl.joins(), tl.joins()
		require.True(t, limiter.AllowN(tl.start.Add(440*ms), 1))
		pacer.(interface{ TickAt(time.Time) }).TickAt(tl.start.Add(450 * ms))
		tl.wg.Wait()
		tl.admittedAt(0, b)
		tl.admittedAt(540*ms, c)
	})
}

func TestOtherReservationsDoNotDelayTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(0.4, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		tl.wg.Go(func() {
			assert.NoError(t, tl.pacer.WaitAtMost(get(), 3*time.Second))
			assert.Equal(t, 2500*ms, time.Since(tl.start))
		})
		synctest.Wait()
		limiter.Reserve()
		limiter.Reserve()
		tl.wg.Wait()
	})
}

func TestAChangedLimitIsNoticedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(0.01, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		b, c := tl.joins(), tl.joins()
		tl.at(10*time.Second + 500*ms) // 0.105 tokens are available
		limiter.SetLimit(1)
		tl.wg.Wait()
		// The change is noticed at 11 s with 0.605 tokens: the first waits another 395
		// ms.
		tl.admittedAt(11*time.Second+395*ms, b)
		tl.admittedAt(12*time.Second+395*ms, c)
	})
}

func TestASlowerLimitRefusesLateWaitersWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(1, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		var errs [3]error
		var ats [3]time.Duration
		for i := range errs {
			tl.wg.Go(func() {
				errs[i] = tl.pacer.WaitAtMost(get(), 5*time.Second)
				ats[i] = time.Since(tl.start)
			})
			synctest.Wait()
		}
		tl.at(500 * ms)
		limiter.SetLimit(0.25) // the first keeps its time; the others' would be 6.5 and 10.5 s
		tl.wg.Wait()

		assert.NoError(t, errs[0])
		assert.Equal(t, 1*time.Second, ats[0])
		assert.Equal(t, 1*time.Second, ats[1])
		assert.Equal(t, 5500*ms, overdueError(t, errs[1]).Wait)
		assert.Equal(t, 4*time.Second+1*ms, overdueError(t, errs[1]).Left)
		assert.Equal(t, 1*time.Second, ats[2])
		assert.Equal(t, 5500*ms, overdueError(t, errs[2]).Wait, "the waiter before has left")
	})
}

func TestAStoppedLimiterRefusesItsWaiters(t *testing.T) {
	for name, stop := range map[string]func(*rate.Limiter){
		"limit 0": func(l *rate.Limiter) { l.SetLimit(0) },
		"burst 0": func(l *rate.Limiter) { l.SetBurst(0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := rate.NewLimiter(0.1, 1)
				tl := newTimeline(t, pace.With(limiter))
				tl.goes()
				b, c := tl.joins(), tl.joins()
				tl.at(500 * ms)
				stop(limiter)
				tl.wg.Wait()
				for _, w := range []*result{b, c} {
					assert.Equal(t, rate.InfDuration, overdueError(t, w.err).Wait)
					assert.LessOrEqual(t, w.at, 2*time.Second)
				}
			})
		})
	}
}

func TestAnOpenedLimiterAdmitsItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(0.01, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		b, c := tl.joins(), tl.joins()
		limiter.SetLimit(rate.Inf)
		tl.wg.Wait()
		tl.admittedAt(1*time.Second, b)
		tl.admittedAt(1*time.Second, c)
	})
}

func TestNewRequestsDoNotOvertakeTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(0.01, 1)
		tl := newTimeline(t, pace.With(limiter))
		tl.goes()
		b, c := tl.joins(), tl.joins()
		tl.at(100 * ms)
		limiter.SetLimit(rate.Inf)
		tl.goes() // and so do those before it
		tl.wg.Wait()
		tl.admittedAt(100*ms, b)
		tl.admittedAt(100*ms, c)
	})
}

// As rate.Limiter defines a limit or a burst of zero.
func TestAClosedLimiterIsAnErrorAtOnce(t *testing.T) {
	for name, limiter := range map[string]*rate.Limiter{
		"zero":                  {},
		"burst 0":               rate.NewLimiter(10, 0),
		"burst -1":              rate.NewLimiter(10, -1),
		"limit 0, burst spent":  spent(rate.NewLimiter(0, 1)),
		"limit -1, burst spent": spent(rate.NewLimiter(-1, 1)),
	} {
		pacer := pace.With(limiter)
		err := pacer.Wait(get())
		assert.Equal(t, rate.InfDuration, overdueError(t, err).Wait, name)
		assert.ErrorContains(t, err, "the limiter never admits this request", name)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	}
}

func spent(l *rate.Limiter) *rate.Limiter {
	l.AllowN(time.Now(), l.Burst())
	return l
}

func TestALimitOfZeroAdmitsTheBurst(t *testing.T) {
	pacer := pace.With(rate.NewLimiter(0, 2))
	require.NoError(t, pacer.Wait(get()))
	require.NoError(t, pacer.Wait(get()))
	overdueError(t, pacer.Wait(get()))
	pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
	require.NoError(t, pacer.Wait(get()))
}

func TestAnInvalidLimiterIsAnError(t *testing.T) {
	pacer := pace.With(nil)
	assert.EqualError(t, pacer.Wait(get()), "pace: the limiter given to With is nil")
	pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
	pacer = pace.With(rate.NewLimiter(rate.Limit(math.NaN()), 1))
	assert.EqualError(t, pacer.Wait(get()), "pace: the limit of the limiter given to With is not a number")
}
