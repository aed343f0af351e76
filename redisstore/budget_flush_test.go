package redisstore_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
)

func TestDepositsAreSentWithTheNextWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 0, 1)
		b := s.budget()
		deposit(b, 25)
		assert.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, []sent{{earned: 25 * earns, price: unit}}, s.took())
		time.Sleep(time.Hour)
		assert.Empty(t, s.took(), "nothing is left to send")
	})
}

func TestATimerSendsDepositsWithoutAWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(0, 0, 1)
		b := s.budget()
		deposit(b, 3)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		assert.Empty(t, s.took())
		deposit(b, 4)
		b.Refund(t.Context(), host)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []sent{{earned: 7 * earns, refunded: unit}}, s.took())
		time.Sleep(time.Hour)
		assert.Empty(t, s.took(), "the timer is not armed while there is nothing to send")
		deposit(b, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []sent{{earned: earns}}, s.took())
		b.Refund(t.Context(), host)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []sent{{refunded: unit}}, s.took())
	})
}

func TestAThousandRefundsASecondAreOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(0, 0, 1)
		b := s.budget()
		for range 10_000 {
			b.Refund(t.Context(), host)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		calls, refunded := s.took(), int64(0)
		for _, call := range calls {
			refunded += call.refunded
		}
		assert.Len(t, calls, 10)
		assert.EqualValues(t, 10_000*unit, refunded)
	})
}

func TestWithoutAKeyEachHostHasItsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 0, 1)
		b := &redisstore.Budget{Client: s.Client}
		deposit(b, 3)
		assert.True(t, b.Withdraw(t.Context(), "https://other.example.com"))
		assert.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, []sent{{price: unit}, {earned: 3 * earns, price: unit}}, s.took())
		b = s.budget()
		deposit(b, 3)
		assert.True(t, b.Withdraw(t.Context(), "https://other.example.com"))
		assert.Equal(t, []sent{{earned: 3 * earns, price: unit}}, s.took())
		time.Sleep(time.Minute)
	})
}

func TestThreeRequestsAtAThirdEarnOneRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 0, 1)
		for ratio, want := range map[float64]int64{
			1. / 3: 333_333_334, 0.3: 300_000_000, 0: 100_000_000, 1e-300: 0, 7: 7 * unit, 1e300: 100 * unit,
		} {
			b := &redisstore.Budget{Client: s.Client, Key: "k", Ratio: ratio}
			deposit(b, 1)
			b.Withdraw(t.Context(), host)
			assert.Equal(t, want, s.took()[0].earned, "%g", ratio)
		}
	})
}

func TestAKeyDoesNotCollideWithAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 0, 1)
		(&redisstore.Budget{Client: s.Client}).Withdraw(t.Context(), host)
		(&redisstore.Budget{Client: s.Client, Key: host}).Withdraw(t.Context(), host)
		assert.NotEqual(t, s.keys[0], s.keys[1])
	})
}

func TestFloorAndTTLHaveDefaultsAndBounds(t *testing.T) {
	const never, day = -1, 24 * time.Hour
	for _, test := range []struct {
		minPerSecond float64
		ttl          time.Duration
		want         terms
	}{
		{0, 0, terms{unit / 1000, 10 * unit, 1000}},
		{never, never, terms{0, 0, 1000}},
		{math.NaN(), 1, terms{0, 0, 1}},
		{2.5, 20 * time.Second, terms{2_500_000, 50 * unit, 2000}},
		{0.01, time.Second, terms{10_000, 3 * unit, 100}}, // at least three retries
		{1. / 3, 9 * time.Second, terms{333_334, 333_334 * 9000, 900}},
		{1e300, 365 * day, terms{1e12, 2251 * 1e12, day.Milliseconds() / 10}}, // below 2^51
		{1e-300, 0, terms{0, 0, 1000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newBudgetFake(t)
			s.answer(1, 0, 1)
			b := &redisstore.Budget{Client: s.Client, MinPerSecond: test.minPerSecond, TTL: test.ttl}
			b.Withdraw(t.Context(), host)
			assert.Equal(t, test.want, s.terms[0], "%v, %v", test.minPerSecond, test.ttl)
		})
	}
}

func TestCancelingAWithdrawalDoesNotInterruptIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		ctx, cancel := context.WithCancel(t.Context())
		s.set(func(context.Context) (any, error) {
			cancel()
			synctest.Wait()
			return []any{int64(1), int64(0), t0, int64(1)}, nil
		})
		assert.True(t, failing(t, s.budget()).Withdraw(ctx, host), "it was counted")
	})
}

func TestAWithdrawalWithAnEndedContextSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, s.budget().Withdraw(ctx, host))
		assert.Empty(t, s.took())
	})
}

func TestIdleAccountsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 0, 1)
		b := &redisstore.Budget{Client: s.Client}
		name := func(i int) string { return "https://" + string(rune('a'+i%26)) + string(rune('a'+i/26)) }
		for i := range 256 {
			b.Deposit(t.Context(), name(i))
		}
		b.Deposit(t.Context(), host)
		assert.Equal(t, 257, redisstore.Accounts(b), "none is idle yet")
		time.Sleep(12 * time.Second)
		synctest.Wait()
		assert.Len(t, s.took(), 257, "each sent what it had")
		for i := range 400 {
			b.Deposit(t.Context(), name(i+256))
		}
		assert.Less(t, redisstore.Accounts(b), 500)
		time.Sleep(time.Minute)
	})
}
