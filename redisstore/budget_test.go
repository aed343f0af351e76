package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var _ heed.Budget = (*redisstore.Budget)(nil)

const host = "https://api.example.com"

// slowly returns a Budget whose floor of ten retries does not refill during a test.
func slowly(client redis.UniversalClient) *redisstore.Budget {
	return &redisstore.Budget{Client: client, Key: "orders-api", MinPerSecond: 0.001, TTL: 10_000 * time.Second}
}

// failing fails the test if a call of b fails. It sets a long Timeout, because the machine may be slow.
func failing(t testing.TB, b *redisstore.Budget) *redisstore.Budget {
	b.Timeout = 10 * time.Second
	b.Degraded = func(err error) {
		if t.Context().Err() == nil { // otherwise the client is being closed
			t.Errorf("degraded: %v", err)
		}
	}
	return b
}

// withdrawn returns how many retries b grants until it refuses one.
func withdrawn(b *redisstore.Budget) (n int) {
	for n < 10_000 && b.Withdraw(ctx, host) {
		n++
	}
	return n
}

func deposit(b *redisstore.Budget, n int) {
	for range n {
		b.Deposit(ctx, host)
	}
}

func refund(b *redisstore.Budget, n int) {
	for range n {
		b.Refund(ctx, host)
	}
}

// budget returns a Budget of another process.
func (s *boardFake) budget(t *testing.T) *redisstore.Budget {
	b := &redisstore.Budget{Key: "orders-api"}
	b.Client = s.client(t, b)
	return b
}

// refuse makes Redis answer with err, or again if err is nil.
func (s *boardFake) refuse(err error) { s.set(func() { s.refusal = err }) }

func (s *boardFake) fallSilent(silent bool) { s.set(func() { s.silent = silent }) }

// tookSent returns what Budgets sent since its last call.
func (s *boardFake) tookSent() (all []sent) {
	synctest.Wait()
	s.set(func() { all, s.sent = s.sent, nil })
	return all
}

// shared returns a Budget of one of three processes that share a balance of 30 retries, from deposits unless
// there is a floor.
func (s *boardFake) shared(t *testing.T, minPerSecond float64) *redisstore.Budget {
	var all [3]*redisstore.Budget
	for i := range all {
		all[i] = s.budget(t)
		all[i].MinPerSecond = minPerSecond
		if minPerSecond < 0 {
			deposit(all[i], 100)
		}
		require.True(t, all[i].Withdraw(t.Context(), host))
	}
	refund(all[2], 3)
	time.Sleep(1010 * ms)
	s.tookSent()
	return all[2]
}

func TestABudgetSendsDepositsAndRefundsTogether(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		b := s.budget(t)
		deposit(b, 25)
		assert.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, []sent{{earned: 25 * earns, price: unit}}, s.tookSent())
		time.Sleep(time.Hour)
		assert.Empty(t, s.tookSent(), "nothing is left to send")
		deposit(b, 3)
		time.Sleep(999 * ms)
		assert.Empty(t, s.tookSent())
		deposit(b, 4)
		b.Refund(t.Context(), host)
		time.Sleep(ms)
		assert.Equal(t, []sent{{earned: 7 * earns, refunded: unit}}, s.tookSent())
		time.Sleep(time.Hour)
		assert.Empty(t, s.tookSent(), "the timer is not armed while there is nothing to send")
		for range 10_000 {
			b.Refund(t.Context(), host)
			time.Sleep(ms)
		}
		time.Sleep(time.Minute)
		assert.Len(t, s.tookSent(), 10)
		deposit(b, 1)
		time.Sleep(time.Second)
		assert.Equal(t, []sent{{earned: earns}}, s.tookSent())
		time.Sleep(time.Second)
		s.set(func() { s.delay = 5 * ms })
		deposit(b, 1)
		go func() { time.Sleep(1005 * ms); deposit(b, 2) }() // while a call runs
		time.Sleep(time.Minute)
		assert.Equal(t, []sent{{earned: earns}, {earned: 2 * earns}}, s.tookSent())

		failing(t, b)
		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(ms, cancel)
		assert.True(t, b.Withdraw(gone, host), "it was counted")
		assert.False(t, b.Withdraw(gone, host))
		assert.Len(t, s.tookSent(), 1)
	})
}

func TestProcessesShareOneRatioAndOneFloor(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		a, b := s.budget(t), s.budget(t)
		a.MinPerSecond, a.TTL = 0.001, 10_000*time.Second
		b.MinPerSecond, b.TTL = a.MinPerSecond, a.TTL
		deposit(a, 503)
		deposit(b, 497)
		time.Sleep(1010 * ms)
		assert.Equal(t, 1000/10+10, withdrawn(a))
		deposit(a, 20)
		refund(a, 3)
		assert.Zero(t, withdrawn(b))
		time.Sleep(1010 * ms)
		assert.Equal(t, 5, withdrawn(b), "what the other one sends by its timer")
		s.restart()
		assert.Equal(t, 10, withdrawn(a), "a new key has the whole floor")
	})
}

func TestEachHostOrKeyHasItsOwnBudget(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		b := s.budget(t)
		deposit(b, 3)
		assert.True(t, b.Withdraw(t.Context(), "https://other.example.com"))
		assert.Equal(t, []sent{{earned: 3 * earns, price: unit}}, s.tookSent())
		withdrawn(b)
		b = &redisstore.Budget{Client: b.Client, Key: host}
		assert.Equal(t, 10, withdrawn(b))
		s.tookSent()
		b = &redisstore.Budget{Client: b.Client}
		deposit(b, 3)
		assert.True(t, b.Withdraw(t.Context(), "https://other.example.com"))
		assert.Equal(t, 10, withdrawn(b), "a Key does not collide with a host")
		assert.Equal(t, []sent{{price: unit}, {earned: 3 * earns, price: unit}}, s.tookSent()[:2])

		name := func(i int) string { return fmt.Sprintf("https://%c%c", 'a'+i%26, 'a'+i/26) }
		for i := range 256 {
			b.Deposit(t.Context(), name(i))
		}
		assert.Equal(t, 258, redisstore.Accounts(b), "none is idle yet")
		time.Sleep(5 * time.Second)
		b.Deposit(t.Context(), "one more")
		assert.Equal(t, 259, redisstore.Accounts(b), "they know a balance")
		time.Sleep(12 * time.Second)
		for i := range 400 {
			b.Deposit(t.Context(), name(i+256))
		}
		assert.Less(t, redisstore.Accounts(b), 500)
	})
}

func TestSettingsOfABudgetHaveDefaultsAndBounds(t *testing.T) {
	const never = -1
	bubble(t, func(t *testing.T, s *boardFake) {
		client := s.client(t, nil)
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
			{1e-300, 1555 * ms, terms{0, 0, 155}},
		} {
			b := &redisstore.Budget{Client: client, MinPerSecond: test.minPerSecond, TTL: test.ttl}
			b.Withdraw(t.Context(), host)
			assert.Equal(t, test.want, s.terms, "%v, %v", test.minPerSecond, test.ttl)
		}
		for ratio, want := range map[float64]int64{
			1. / 3: 333_333_334, 0.3: 300_000_000, 0: 100_000_000, 1e-300: 0, 7: 7 * unit, 1e300: 100 * unit, never: 0,
		} {
			b := &redisstore.Budget{Client: client, Ratio: ratio}
			deposit(b, 1)
			s.tookSent()
			b.Withdraw(t.Context(), host)
			assert.Equal(t, want, s.tookSent()[0].earned, "%g", ratio)
		}
	})
}

// Its share of 30 retries is 10 when Redis falls silent, and one more by its part of the floor each second.
func TestWithoutRedisAProcessSpendsItsShare(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		b := s.shared(t, 3)
		s.fallSilent(true)
		began := time.Now()
		require.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, 50*ms, time.Since(began))
		assert.Equal(t, 10-1, withdrawn(b))
		assert.Equal(t, 50*ms, time.Since(began), "only the first one waits")
		assert.Len(t, s.tookSent(), 1)
		time.Sleep(900 * ms)
		assert.Equal(t, 0, withdrawn(b))
		time.Sleep(110 * ms)
		assert.Equal(t, 1, withdrawn(b))
		deposit(b, 10)
		assert.Equal(t, 1, withdrawn(b), "what its own requests earn")
		time.Sleep(time.Hour)
		assert.Equal(t, 10, withdrawn(b), "its part of the floor")
		assert.Empty(t, s.tookSent(), "nothing is sent that could be lost")
	})
	bubble(t, func(t *testing.T, s *boardFake) { // without a floor
		b := s.shared(t, -1)
		time.Sleep(5 * time.Second)
		s.fallSilent(true)
		require.True(t, b.Withdraw(t.Context(), host))
		time.Sleep(3900 * ms)
		require.True(t, b.Withdraw(t.Context(), host))
		deposit(b, 30)
		time.Sleep(1060 * ms)
		assert.Equal(t, 3, withdrawn(b), "the rest of the share has expired")
		deposit(b, 100)
		time.Sleep(11 * time.Second)
		assert.Equal(t, 0, withdrawn(b), "deposits too")
		retries := 0
		for range 600 { // retries that are given back do not pile up
			deposit(b, 100)
			for retries = 0; retries < 50 && b.Withdraw(t.Context(), host); {
				retries++
			}
			time.Sleep(time.Second)
			refund(b, retries)
		}
		assert.Equal(t, 50, retries)
		assert.InDelta(t, 100, withdrawn(b), 15)
	})
	bubble(t, func(t *testing.T, s *boardFake) { // as one of five, with less than a retry of the floor
		for range 2 {
			other := s.budget(t)
			other.MinPerSecond = 0.2
			deposit(other, 10)
			require.True(t, other.Withdraw(t.Context(), host))
		}
		b := s.shared(t, 0.2)
		withdrawn(b)
		s.fallSilent(true)
		require.False(t, b.Withdraw(t.Context(), host))
		time.Sleep(24 * time.Second)
		assert.Equal(t, 0, withdrawn(b))
		time.Sleep(1100 * ms)
		assert.Equal(t, 1, withdrawn(b))
		time.Sleep(time.Hour)
		assert.Equal(t, 1, withdrawn(b), "it accumulates no more than one")
	})
}

// Without Redis, a process does not know how many others there are, and must not use the whole floor.
func TestABudgetThatNeverReachedRedisSpendsItsEarnings(t *testing.T) {
	for _, test := range []struct {
		minPerSecond float64
		want         [4]int // at once, and after 9.9 s, 10.1 s and an hour
	}{
		{0, [4]int{1, 0, 1, 1}},
		{1000, [4]int{1, 0, 1, 1}},
		{0.01, [4]int{1, 0, 0, 1}}, // one retry takes 100 s
		{-1, [4]int{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			errs := make(chan error, 100)
			b := &redisstore.Budget{MinPerSecond: test.minPerSecond, Degraded: func(err error) { errs <- err }}
			for i, wait := range []time.Duration{0, 9900 * ms, 200 * ms, time.Hour} {
				time.Sleep(wait)
				assert.Equal(t, test.want[i], withdrawn(b), "%v: %d", test.minPerSecond, i)
			}
			deposit(b, 30)
			assert.Equal(t, 3, withdrawn(b))
			refund(b, 1)
			assert.Equal(t, 1, withdrawn(b))
			assert.EqualError(t, <-errs, "redisstore.Budget: redisstore: Client is nil")
			time.Sleep(time.Hour)
			assert.Less(t, len(errs), 30, "an idle Budget sends nothing")
			assert.NotPanics(t, func() { withdrawn(&redisstore.Budget{Client: (*redis.Ring)(nil)}) })
			time.Sleep(time.Minute)
		})
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestWhatWasSpentWithoutRedisIsChargedLater(t *testing.T) {
	for name, test := range map[string]struct {
		refusal error // or silence
		alone   func(t *testing.T, b *redisstore.Budget)
		want    []sent // without those of nothing
	}{
		"but not a retry that may have been charged": {nil, func(t *testing.T, b *redisstore.Budget) {
			assert.Equal(t, 10, withdrawn(b))
			deposit(b, 4)
		}, []sent{{earned: 4 * earns, owed: 9 * unit}}},
		"not what was refunded": {redisError("LOADING"), func(t *testing.T, b *redisstore.Budget) {
			assert.Equal(t, 10, withdrawn(b))
			deposit(b, 20)
			assert.Equal(t, 2, withdrawn(b))
			refund(b, 13)
			assert.Equal(t, 12, withdrawn(b), "Redis granted the thirteenth")
			refund(b, 11)
		}, []sent{{earned: 2 * unit, owed: unit}}},
		"not what its own requests earned": {nil, func(t *testing.T, b *redisstore.Budget) {
			withdrawn(b)
			deposit(b, 25)
			assert.Equal(t, 2, withdrawn(b))
		}, []sent{{earned: earns * 5, owed: 9 * unit}}},
		"but not after TTL": {nil, func(t *testing.T, b *redisstore.Budget) {
			withdrawn(b)
			time.Sleep(11 * time.Second)
			assert.Equal(t, 10, withdrawn(b), "the floor")
			time.Sleep(6 * time.Second)
		}, []sent{{owed: 10 * unit}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *boardFake) {
				b := s.shared(t, 3)
				s.set(func() { s.refusal, s.silent = test.refusal, test.refusal == nil })
				test.alone(t, b)
				s.tookSent()
				s.set(func() { s.refusal, s.silent = nil, false })
				time.Sleep(5 * time.Second)
				var got []sent
				for _, one := range s.tookSent() {
					if one != (sent{}) {
						got = append(got, one)
					}
				}
				assert.Equal(t, test.want, got)
				require.True(t, b.Withdraw(t.Context(), host))
				assert.Equal(t, []sent{{price: unit}}, s.tookSent(), "and only once")
				time.Sleep(time.Minute)
				assert.Empty(t, s.tookSent())
			})
		})
	}
}

// What Redis refused is sent again, and what it may have counted is not.
func TestNothingIsSentTwice(t *testing.T) {
	for _, test := range []struct {
		err  error // or silence
		want []sent
	}{
		{errors.New("EOF"), []sent{{}, {refunded: unit, owed: unit}}},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, []sent{{}, {refunded: unit, owed: unit}}},
		{nil, []sent{{}, {refunded: unit, owed: unit}}},
		{redisError("WRONGTYPE Operation against a key"), []sent{{}, {earned: 5 * earns, refunded: unit, owed: 2 * unit}, {},
			{earned: 5 * earns, owed: unit}}},
	} {
		bubble(t, func(t *testing.T, s *boardFake) {
			b := s.shared(t, 3)
			var lost error
			b.Degraded = func(err error) { lost = err }
			fail := func(on bool) {
				s.set(func() { s.silent = on && test.err == nil })
				if s.refuse(nil); on {
					s.refuse(test.err)
				}
			}
			fail(true)
			deposit(b, 5)
			assert.True(t, b.Withdraw(t.Context(), host))
			assert.ErrorContains(t, lost, "redisstore.Budget: redisstore: ")
			assert.True(t, b.Withdraw(t.Context(), host))
			require.Equal(t, []sent{{earned: 5 * earns, price: unit}}, s.tookSent())
			fail(false)
			var got []sent
			for waited := 0; len(got) == 0; waited++ {
				require.Less(t, waited, 6000, "Redis is never asked again")
				time.Sleep(10 * ms)
				got = s.tookSent()
			}
			refund(b, 1)
			fail(true) // when it gets what is kept
			time.Sleep(1500 * ms)
			fail(false)
			time.Sleep(5 * time.Second)
			assert.Equal(t, test.want, append(got, s.tookSent()...), test.err)
			time.Sleep(time.Minute)
		})
	}
}

func TestBalanceIsWhatAProcessKnows(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		b, other := s.budget(t), s.budget(t)
		has := func(want float64) {
			t.Helper()
			assert.InDelta(t, want, b.Balance(host), 0.06)
		}
		has(10)
		assert.Zero(t, redisstore.Accounts(b), "it keeps nothing")
		deposit(b, 50)
		has(15)
		assert.Equal(t, 15, withdrawn(b))
		has(0)
		s.tookSent()
		deposit(b, 7)
		refund(b, 1)
		has(1.7)
		time.Sleep(500 * ms)
		has(2.2) // the floor has gained half a retry
		assert.Empty(t, s.tookSent(), "without a round trip")
		time.Sleep(510 * ms)
		has(2.7)
		deposit(other, 100)
		assert.Equal(t, 12, withdrawn(other))
		has(2.7) // it does not know yet
		deposit(b, 1)
		time.Sleep(1010 * ms)
		has(1.8)
		deposit(b, 200)
		time.Sleep(1010 * ms)
		has(22.8)
		time.Sleep(9 * time.Second)
		has(22.8) // deposits may be spent for TTL
		time.Sleep(time.Second)
		has(10)
		assert.Equal(t, 10, withdrawn(b))

		s.restart()
		b = s.shared(t, 3) // of 30
		has(30)
		s.fallSilent(true)
		assert.True(t, b.Withdraw(t.Context(), host))
		has(9) // of its share
		deposit(b, 10)
		has(10)
		assert.Equal(t, 10, withdrawn(b))
		has(0)
		time.Sleep(500 * ms)
		has(0.5)
		s.fallSilent(false)
		time.Sleep(2 * time.Second)
		has(21)
	})
}
