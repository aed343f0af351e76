package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// moment is long enough for everything that is due now.
const moment = time.Millisecond

func TestAHoldIsRenewedThreeTimesInItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold := mustAcquire(t, s, "key", 20, 3)
		require.Equal(t, []string{"take key"}, g.took())
		for range 300 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Equal(t, []string{"keep key"}, g.took())
			require.EqualValues(t, 3, g.inUse("key"))
		}
		assert.False(t, isLost(hold))
		hold.Release()
		assert.Equal(t, []string{"drop key"}, g.took())
		g.isForgotten(t)
		assert.False(t, isLost(hold))
	})
}

func TestHoldTTLIsThatOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for ttl, renewed := range map[time.Duration]time.Duration{
			0: 10 * time.Second, -1: 10 * time.Second, 3 * time.Second: time.Second,
			time.Millisecond: 33333333, 300 * time.Hour: 8 * time.Hour,
		} {
			g := newGateFake(t)
			s := g.store(t)
			s.HoldTTL = ttl
			hold := mustAcquire(t, s, "key", 1, 1)
			g.took()
			time.Sleep(renewed - 1)
			assert.Empty(t, g.took(), ttl)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.Equal(t, []string{"keep key"}, g.took(), ttl)
			hold.Release()
		}
	})
}

func TestHoldsOfAKeyAreRenewedByOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		var holds []*quota.Hold
		for i := range 300 {
			holds = append(holds, mustAcquire(t, s, "many", 1000, 1))
			if i%100 == 0 {
				holds = append(holds, mustAcquire(t, s, fmt.Sprint("key ", i), 1, 1))
			}
			time.Sleep(10 * time.Millisecond)
		}
		g.took()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		calls := g.took()
		slices.SortFunc(calls, func(a, b string) int { return len(a) - len(b) })
		require.Len(t, calls, 5)
		assert.ElementsMatch(t, []string{"keep key 0", "keep key 100", "keep key 200"}, calls[:3])
		assert.Equal(t, strings.Repeat("keep ", 300-256)+"many", calls[3])
		assert.Equal(t, strings.Repeat("keep ", 256)+"many", calls[4])
		for _, hold := range holds {
			hold.Release()
		}
		g.isForgotten(t)
	})
}

func TestASlowRedisRenewsHoldsOfManyKeysInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		var holds []*quota.Hold
		for i := range 500 {
			holds = append(holds, mustAcquire(t, s, fmt.Sprint(i), 1, 1))
		}
		g.set(func(_ context.Context, execute func() any) (any, error) {
			time.Sleep(40 * time.Millisecond)
			return execute(), nil
		})
		for range 10 {
			time.Sleep(6 * time.Second)
			for i := range holds {
				require.EqualValues(t, 1, g.inUse(fmt.Sprint(i)))
			}
		}
		for _, hold := range holds {
			require.False(t, isLost(hold))
			hold.Release()
		}
		time.Sleep(time.Second) // for the last renewals
	})
}

func TestAFailedRenewalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold := mustAcquire(t, s, "key", 1, 1)
		for name, broken := range map[string]server{
			"silent": silent, "no answers": noAnswers, "refusing": refusing(redisError("LOADING Redis is loading")),
		} {
			for range 10 {
				g.set(broken)
				time.Sleep(18 * time.Second) // of the 20 s that are left at least
				synctest.Wait()              // so that what is due now is not due again soon
				g.took()
				g.set(well)
				time.Sleep(time.Second)
				require.Contains(t, g.took(), "keep key", name)
				require.EqualValues(t, 1, g.inUse("key"), name)
				require.False(t, isLost(hold), name)
			}
		}
		hold.Release()
		assert.Zero(t, g.inUse("key"))
	})
}

func TestAHoldIsLostBeforeRedisFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold := mustAcquire(t, s, "key", 1, 1)
		g.set(silent)
		time.Sleep(30*time.Second - 1)
		assert.False(t, isLost(hold))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(t, isLost(hold))
		assert.Zero(t, g.inUse("key"))

		g.set(well) // the hold is counted again, because it is in use
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, g.inUse("key"))
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, g.inUse("key"))
		hold.Release()
		assert.Zero(t, g.inUse("key"))
	})
}

func TestAHoldThatRedisForgotIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold, other := mustAcquire(t, s, "key", 3, 2), mustAcquire(t, s, "key", 3, 1)
		g.forget()
		g.took()
		time.Sleep(10*time.Second + moment)
		assert.Equal(t, []string{"keep keep key", "take take key"}, g.took())
		assert.EqualValues(t, 3, g.inUse("key"))
		time.Sleep(time.Minute)
		assert.False(t, isLost(hold) || isLost(other))
		hold.Release()
		other.Release()
		assert.Zero(t, g.inUse("key"))
	})
}

func TestAHoldIsLostIfItsPlacesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		lost, also := mustAcquire(t, s, "key", 2, 1), mustAcquire(t, s, "key", 2, 1)
		g.forget()
		stranger := mustAcquire(t, &redisstore.Store{Client: g.Client}, "key", 2, 1)
		time.Sleep(10*time.Second + moment)
		assert.NotEqual(t, isLost(lost), isLost(also), "there are places for one of them")
		if isLost(also) {
			lost, also = also, lost
		}
		assert.EqualValues(t, 2, g.inUse("key"))
		lost.Release()
		assert.EqualValues(t, 2, g.inUse("key"))
		also.Release()
		assert.EqualValues(t, 1, g.inUse("key"))
		stranger.Release()
		assert.Zero(t, g.inUse("key"))
		g.isForgotten(t)
	})
}

func TestALostHoldIsCountedAgainWhenPlacesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s, strangers := g.store(t), g.store(t)
		hold := mustAcquire(t, s, "key", 1, 1)
		g.forget()
		stranger := mustAcquire(t, strangers, "key", 1, 1)
		time.Sleep(time.Minute)
		assert.True(t, isLost(hold))
		stranger.Release()
		time.Sleep(10*time.Second + moment)
		_, d, err := strangers.Acquire(ctx, "key", 1, 1)
		require.NoError(t, err)
		assert.False(t, d.Allowed, "the lost hold is counted again")
		hold.Release()
		mustAcquire(t, strangers, "key", 1, 1).Release()
	})
}

func TestHoldsAreRenewedAsSoonAsRedisAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold, far := mustAcquire(t, s, "key", 2, 1), mustAcquire(t, s, "far", 2, 1)
		g.set(silent)
		_, _, err := s.Acquire(ctx, "key", 2, 1)
		require.Error(t, err)
		time.Sleep(3 * time.Second)
		g.forget()
		g.set(well)
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, g.inUse("key"))
		assert.Zero(t, g.inUse("far"), "another key is renewed at its usual time")
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, g.inUse("far"))
		hold.Release()
		far.Release()
	})
}

func TestPlacesTakenByAnUnansweredCallAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		g.set(noAnswers)
		hold, d, err := s.Acquire(ctx, "key", 1, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Nil(t, hold)
		assert.Zero(t, d)
		assert.EqualValues(t, 1, g.inUse("key"))
		g.set(well)
		time.Sleep(2 * time.Second)
		assert.Zero(t, g.inUse("key"))
		g.isForgotten(t)
	})
}

func TestPlacesTakenByALateCallAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		g.set(delayed(5 * time.Second))
		_, _, err := s.Acquire(ctx, "key", 1, 1)
		require.Error(t, err)
		g.set(well)
		time.Sleep(4 * time.Second)
		require.Contains(t, g.took(), "drop key", "it finds nothing")
		time.Sleep(2 * time.Second)
		require.Contains(t, g.took(), "take key")
		assert.Zero(t, g.inUse("key"))
		g.isForgotten(t)
	})
}

func TestPlacesTakenByAVeryLateCallExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		g.set(delayed(35 * time.Second))
		_, _, err := s.Acquire(ctx, "key", 1, 1)
		require.Error(t, err)
		g.set(well)
		time.Sleep(35*time.Second + moment)
		assert.EqualValues(t, 1, g.inUse("key"))
		g.isForgotten(t)
		time.Sleep(30 * time.Second)
		assert.Zero(t, g.inUse("key"))
	})
}

func TestAHoldReleasedWhileItIsRetakenIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold := mustAcquire(t, s, "key", 1, 1)
		g.forget()
		g.set(func(ctx context.Context, execute func() any) (any, error) {
			reply := execute() // a keep, and the entry does not exist
			g.set(delayed(3 * time.Second))
			return reply, nil
		})
		time.Sleep(10*time.Second + 100*time.Millisecond)
		g.set(well)
		hold.Release()
		assert.Zero(t, g.inUse("key"))
		time.Sleep(3*time.Second + moment)
		time.Sleep(time.Second)
		assert.Zero(t, g.inUse("key"))
		g.isForgotten(t)
	})
}

func TestAFailedReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold := mustAcquire(t, s, "key", 1, 1)
		g.set(silent)
		start := time.Now()
		hold.Release()
		assert.Equal(t, 50*time.Millisecond, time.Since(start), "the Timeout")
		assert.EqualValues(t, 1, g.inUse("key"))
		time.Sleep(5 * time.Second)
		g.set(well)
		time.Sleep(time.Second)
		assert.Zero(t, g.inUse("key"))
		g.isForgotten(t)
	})
}

func TestAReleaseIsGivenUpWhenItsHoldHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		hold := mustAcquire(t, s, "key", 1, 1)
		g.set(silent)
		hold.Release()
		time.Sleep(31 * time.Second)
		g.isForgotten(t)
		assert.False(t, isLost(hold), "for whom?")
		g.set(well)
		g.took()
		time.Sleep(time.Hour)
		assert.Empty(t, g.took())
	})
}

func TestAReleaseWithAnEndedContextRunsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		request, cancel := context.WithCancel(ctx)
		hold, _, err := s.Acquire(request, "key", 1, 1)
		require.NoError(t, err)
		g.set(func(_ context.Context, execute func() any) (any, error) {
			time.Sleep(40 * time.Millisecond)
			return execute(), nil
		})
		cancel()
		start := time.Now()
		hold.Release()
		assert.Zero(t, time.Since(start))
		time.Sleep(40*time.Millisecond + moment)
		assert.Zero(t, g.inUse("key"))
		g.isForgotten(t)
	})
}

func TestACanceledReleaseDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		request, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		hold, _, err := s.Acquire(request, "key", 1, 1)
		require.NoError(t, err)
		g.set(silent)
		start := time.Now()
		hold.Release()
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		g.set(well)
		time.Sleep(time.Second)
		assert.Zero(t, g.inUse("key"))
	})
}

func TestAHoldOutlivesTheContextItWasAcquiredWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		request, cancel := context.WithCancel(ctx)
		hold, _, err := s.Acquire(request, "key", 1, 1)
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, g.inUse("key"))
		assert.False(t, isLost(hold))
		hold.Release()
	})
}

func TestUnsentAcquiresAreNotRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		g.set(silent)
		start := time.Now()
		_, _, err := s.Acquire(ctx, "key", 1, 1)
		require.Error(t, err)
		assert.Equal(t, 50*ms, time.Since(start))
		for range 10_000 {
			_, _, err := s.Acquire(ctx, "key", 1, 1)
			require.ErrorContains(t, err, "is unavailable")
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err = s.Acquire(gone, "key", 1, 1)
		require.Equal(t, context.Canceled, err)
		g.set(well)
		time.Sleep(time.Second)
		assert.Contains(t, g.took(), "drop key", "only the first may have taken places")
		time.Sleep(time.Minute)
		g.isForgotten(t)
	})
}

func TestRefusedAcquiresAreNotRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateFake(t)
		s := g.store(t)
		g.set(refusing(redisError("WRONGTYPE Operation against a key")))
		_, _, err := s.Acquire(ctx, "key", 1, 1)
		require.ErrorContains(t, err, "WRONGTYPE")
		g.isForgotten(t)
	})
}
