package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWithoutRedisAShareOfTheBalanceIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		assert.Equal(t, 10, withdrawn(b))
		time.Sleep(2900 * time.Millisecond)
		assert.Equal(t, 0, withdrawn(b))
		time.Sleep(110 * time.Millisecond) // a third of a retry is earned each second
		assert.Equal(t, 1, withdrawn(b))
		deposit(b, 10)
		assert.Equal(t, 1, withdrawn(b), "what its own requests earn")
		time.Sleep(time.Minute)
	})
}

func TestWithoutRedisTheShareIsForgottenAfterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		b.MinPerSecond = -1
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		require.True(t, b.Withdraw(t.Context(), host))
		time.Sleep(8900 * time.Millisecond)
		require.True(t, b.Withdraw(t.Context(), host))
		deposit(b, 30)
		time.Sleep(1060 * time.Millisecond)
		assert.Equal(t, 3, withdrawn(b))
		deposit(b, 100)
		time.Sleep(11 * time.Second)
		assert.Equal(t, 0, withdrawn(b), "deposits too")
		time.Sleep(time.Minute)
	})
}

func TestAnHourWithoutRedisEarnsNoMoreThanTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.fallSilent()
		b := s.budget()
		b.MinPerSecond = -1
		require.False(t, b.Withdraw(t.Context(), host))
		for range 3600 {
			deposit(b, 10)
			time.Sleep(time.Second)
		}
		assert.InDelta(t, 10, withdrawn(b), 1)
		time.Sleep(time.Minute)
	})
}

func TestABudgetThatNeverReachedRedisSpendsItsEarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := make(chan error, 100)
		b := &redisstore.Budget{Degraded: func(err error) { errs <- err }}
		assert.Equal(t, 1, withdrawn(b))
		deposit(b, 30)
		assert.Equal(t, 3, withdrawn(b))
		b.Refund(t.Context(), host)
		assert.Equal(t, 1, withdrawn(b))
		assert.EqualError(t, <-errs, "redisstore.Budget: redisstore: Client is nil")
		time.Sleep(time.Hour)
		assert.Less(t, len(errs), 20, "an idle Budget sends nothing")
		for _, client := range []redis.UniversalClient{(*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
			b := &redisstore.Budget{Client: client}
			deposit(b, 10)
			assert.Equal(t, 2, withdrawn(b))
		}
		time.Sleep(time.Minute)
	})
}

func TestWithoutRedisRefundsUndoWithdrawals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 6*unit, 2)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.refuse(redisError("LOADING"))
		assert.Equal(t, 3, withdrawn(b))
		deposit(b, 20)
		assert.Equal(t, 2, withdrawn(b))
		for range 6 {
			b.Refund(t.Context(), host)
		}
		assert.Equal(t, 5, withdrawn(b), "Redis granted the sixth")
		for range 4 {
			b.Refund(t.Context(), host)
		}
		s.answer(1, 6*unit, 2)
		s.took()
		time.Sleep(5 * time.Second)
		assert.Equal(t, []sent{{}, {earned: 2 * unit, owed: unit}}, s.took(), "what was refunded is not owed")
		time.Sleep(time.Minute)
	})
}

func TestAnHourOfRefundsWithoutRedisDoesNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.fallSilent()
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		retries := 0
		for range 3600 {
			deposit(b, 100)
			for retries = 0; retries < 50 && b.Withdraw(t.Context(), host); {
				retries++
			}
			time.Sleep(time.Second)
			for range retries {
				b.Refund(t.Context(), host)
			}
		}
		assert.Equal(t, 50, retries)
		assert.InDelta(t, 100, withdrawn(b), 15)
		time.Sleep(time.Minute)
	})
}

// A process that does not know how many others there are must not use the whole floor.
func TestWithoutRedisTheFloorIsOneRetryPerTTL(t *testing.T) {
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
			b := &redisstore.Budget{MinPerSecond: test.minPerSecond}
			var got [4]int
			for i, wait := range []time.Duration{0, 9900 * ms, 200 * ms, time.Hour} {
				time.Sleep(wait)
				got[i] = withdrawn(b)
			}
			assert.Equal(t, test.want, got, "%v", test.minPerSecond)
			time.Sleep(time.Minute)
		})
	}
}

func TestABudgetWaitsOnceForARedisThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 1000*unit, 1)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		s.took()
		began := time.Now()
		require.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		began = time.Now()
		assert.Equal(t, 1000-1, withdrawn(b))
		assert.Zero(t, time.Since(began))
		assert.Len(t, s.took(), 1)
		for range 35 {
			time.Sleep(100 * ms)
			began = time.Now()
			b.Deposit(t.Context(), host)
			b.Withdraw(t.Context(), host)
			assert.Zero(t, time.Since(began))
		}
		time.Sleep(time.Hour)
		assert.Empty(t, s.took(), "nothing is sent that could be lost")
	})
}

func TestRetriesSpentWithoutRedisAreChargedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		require.True(t, b.Withdraw(t.Context(), host))
		require.True(t, b.Withdraw(t.Context(), host))
		deposit(b, 4)
		s.answer(1, 28*unit, 3)
		s.took()
		time.Sleep(5 * time.Second)
		assert.Equal(t, []sent{{}, {earned: 4 * earns, owed: unit}}, s.took(), "not the retry that may have been charged")
		require.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, []sent{{price: unit}}, s.took(), "and only once")
		time.Sleep(time.Minute)
		assert.Empty(t, s.took())
	})
}

func TestEachOfManyProcessesHasAPartOfTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(0, 0, 20)
		b := s.budget()
		require.False(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		require.False(t, b.Withdraw(t.Context(), host))
		time.Sleep(19 * time.Second)
		assert.Equal(t, 0, withdrawn(b))
		time.Sleep(time.Second)
		assert.Equal(t, 1, withdrawn(b))
		time.Sleep(time.Hour)
		assert.Equal(t, 1, withdrawn(b), "it accumulates no more than one")
		time.Sleep(time.Minute)
	})
}

// After TTL Redis has forgotten the balance and the floor, so nothing is owed any more.
func TestRetriesSpentWithoutRedisAreOwedForTTL(t *testing.T) {
	for _, test := range []struct {
		balance int64
		spent   int // retries spent at once; Redis may have charged the first
		wait    time.Duration
		later   int // and after wait
		owed    int64
	}{
		{balance: 15 * unit, spent: 5, wait: time.Second, owed: 4 * unit},
		{wait: 4 * time.Second, later: 1, owed: unit},
		{balance: 15 * unit, spent: 5, wait: 11 * time.Second, later: 3, owed: 3 * unit},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newBudgetFake(t)
			s.answer(1, test.balance, 3)
			b := s.budget()
			require.True(t, b.Withdraw(t.Context(), host))
			s.fallSilent()
			require.Equal(t, test.spent, withdrawn(b))
			time.Sleep(test.wait)
			require.Equal(t, test.later, withdrawn(b))
			s.answer(0, 10*unit, 3)
			s.took()
			time.Sleep(5*time.Second + ms)
			assert.Equal(t, []sent{{}, {owed: test.owed}}, s.took())
			time.Sleep(time.Minute)
		})
	}
}

func TestARetryWithoutAnAnswerIsNotChargedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		fail func(*budgetFake)
		want []sent
	}{
		"no answer": {(*budgetFake).fallSilent, []sent{{}, {owed: 2 * unit}}},
		"refused": {
			func(s *budgetFake) { s.refuse(redisError("LOADING")) },
			[]sent{{}, {owed: 2 * unit}, {}, {owed: 2 * unit}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBudgetFake(t)
				s.answer(1, 30*unit, 3)
				b := s.budget()
				require.True(t, b.Withdraw(t.Context(), host))
				s.fallSilent()
				for range 3 {
					require.True(t, b.Withdraw(t.Context(), host))
				}
				s.answer(0, 30*unit, 3)
				s.took()
				var got []sent
				for len(got) == 0 { // until Redis is asked again
					time.Sleep(10 * ms)
					got = s.took()
				}
				test.fail(s) // Redis fails again when it gets the debt
				time.Sleep(1500 * ms)
				s.answer(0, 30*unit, 3)
				time.Sleep(5 * time.Second)
				assert.Equal(t, test.want, append(got, s.took()...))
				time.Sleep(time.Minute)
			})
		})
	}
}

// A losing is a hook that loses every tenth call of a Budget, before or after it is executed.
type losing struct {
	answer bool
	calls  atomic.Int64
	units  atomic.Int64 // what the lost calls would charge
}

func (l *losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if len(args) < 8 || l.calls.Add(1)%10 != 0 {
			return next(ctx, cmd)
		}
		l.units.Add(args[6].(int64) + args[7].(int64))
		if l.answer {
			next(ctx, cmd)
		}
		cmd.SetErr(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}
}

func TestNoRetryIsChargedTwiceAfterLostReplies(t *testing.T) {
	for name, answer := range map[string]bool{"calls": false, "answers": true} {
		t.Run(name, func(t *testing.T) {
			mostlyWaits(t)
			client := newClient(t, redistest.Shared(t))
			hook := &losing{answer: answer}
			client.AddHook(hook)
			// A floor of a thousand retries, which does not refill during the test.
			b := &redisstore.Budget{Client: client, Key: "k", MinPerSecond: 0.1, TTL: 10_000 * time.Second}
			b.Timeout = patient
			granted := 0
			began := time.Now()
			for n := 0; n < stated(500, 150) || hook.units.Load() == 0 && time.Since(began) < hang; n++ {
				if b.Withdraw(t.Context(), host) {
					granted++
				}
				time.Sleep(20 * ms)
			}
			require.Positive(t, hook.units.Load())
			charged := func() int64 {
				floor, err := client.HGet(t.Context(), "heed:budget:k", "floor").Int64()
				assert.NoError(t, err)
				return 1000*unit - floor
			}
			all := func() bool { // except what the floor has gained
				missing := int64(0)
				if !answer {
					missing = hook.units.Load()
				}
				return charged() >= int64(granted)*unit-missing-5*unit
			}
			require.Eventually(t, all, hang, 50*ms)
			time.Sleep(3 * time.Second)
			assert.LessOrEqual(t, charged(), int64(granted)*unit)
		})
	}
}

// A Redis that was stopped executes later what it was sent before.
func TestAStoppedRedisChargesNoRetryTwice(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Start(t)
	client := newClient(t, server)
	var granted, failed atomic.Int64
	b := &redisstore.Budget{Client: client, Key: "k", MinPerSecond: 0.1, TTL: 10_000 * time.Second}
	b.Degraded = func(error) { failed.Add(1) }
	require.Eventually(t, func() bool { // so that Redis is known before it is stopped
		before := failed.Load()
		if b.Withdraw(t.Context(), host) {
			granted.Add(1)
		}
		return failed.Load() == before
	}, hang, ms)
	end := make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(200 * ms):
				}
				if b.Withdraw(t.Context(), host) {
					granted.Add(1)
				}
			}
		})
	}
	for range 2 {
		server.Stop()
		time.Sleep(1500 * ms)
		server.Cont()
		time.Sleep(1500 * ms)
	}
	close(end)
	all.Wait()
	charged := func() int64 {
		floor, err := client.HGet(t.Context(), "heed:budget:k", "floor").Int64()
		assert.NoError(t, err)
		return 1000*unit - floor
	}
	require.Eventually(t, func() bool { return charged() >= (granted.Load()-failed.Load()-5)*unit }, hang, 50*ms)
	time.Sleep(3 * time.Second)
	assert.LessOrEqual(t, charged(), granted.Load()*unit)
	assert.Positive(t, failed.Load())
}

func TestOnlyAMissingAnswerLosesDeposits(t *testing.T) {
	for name, lose := range map[string]struct {
		err  error
		kept int
	}{
		"refused":        {redis.ErrPoolTimeout, 0},
		"no reply":       {errors.New("EOF"), 0},
		"cannot read":    {&net.OpError{Op: "read", Err: errors.New("connection reset")}, 0},
		"WRONGTYPE":      {redisError("WRONGTYPE Operation against a key"), 2},
		"LOADING":        {redisError("LOADING Redis is loading"), 2},
		"still NOSCRIPT": {redisError("NOSCRIPT No matching script"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBudgetFake(t)
				s.answer(1, 0, 1)
				b := s.budget()
				b.MinPerSecond = -1
				require.True(t, b.Withdraw(t.Context(), host))
				s.refuse(lose.err)
				errs := make(chan error, 100)
				b.Degraded = func(err error) { errs <- err }
				deposit(b, 20)
				assert.Equal(t, lose.kept, withdrawn(b))
				err := <-errs
				assert.ErrorIs(t, err, lose.err)
				assert.ErrorContains(t, err, "redisstore: ")
				time.Sleep(time.Minute)
			})
		})
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestInvalidRepliesCountAsFailures(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "OK", []any{}, []any{int64(1)},
		[]any{int64(1), int64(-1), int64(0), int64(1)}, []any{int64(1), int64(5), int64(0), int64(0)},
		[]any{"1", "x", nil, []any{}}, []any{int64(1), int64(1), int64(1), int64(1), int64(1)}} {
		synctest.Test(t, func(t *testing.T) {
			s := newBudgetFake(t)
			s.set(func(context.Context) (any, error) { return reply, nil })
			b := s.budget()
			b.MinPerSecond = -1
			errs := make(chan error, 100)
			b.Degraded = func(err error) { errs <- err }
			assert.False(t, b.Withdraw(t.Context(), host), "%v", reply)
			assert.ErrorContains(t, <-errs, "redisstore: unexpected reply of the budget script", "%v", reply)
			time.Sleep(time.Minute)
		})
	}
}

func TestCallsThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBudgetFake(t)
		s.answer(0, 0, 1)
		var busy atomic.Int64
		b := &redisstore.Budget{Client: s.Client, Degraded: func(err error) {
			if errors.Is(err, remote.ErrBusy) {
				busy.Add(1)
			}
		}}
		require.False(t, b.Withdraw(t.Context(), host))
		s.took()
		release := make(chan struct{})
		s.set(func(context.Context) (any, error) { <-release; return nil, nil })
		began := time.Now()
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() { b.Withdraw(t.Context(), fmt.Sprint(host, i)) })
		}
		all.Wait()
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		assert.Positive(t, busy.Load())
		assert.EqualValues(t, 3000, len(s.took())+int(busy.Load()))
		s.answer(0, 0, 1)
		close(release)
		time.Sleep(time.Minute)
	})
}
