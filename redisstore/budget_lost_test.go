package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLostBudgetSpendsItsShareOfTheLastBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		assert.Equal(t, 10, withdrawn(b))
		time.Sleep(2900 * time.Millisecond)
		assert.Equal(t, 0, withdrawn(b))
		time.Sleep(110 * time.Millisecond) // a third of a retry each second
		assert.Equal(t, 1, withdrawn(b))
		deposit(b, 10)
		assert.Equal(t, 1, withdrawn(b), "what its own requests earn")
		time.Sleep(time.Minute)
	})
}

func TestLostBudgetForgetsItsShareAfterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		b.MinPerSecond = -1
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		require.True(t, b.Withdraw(t.Context(), host))
		time.Sleep(9940 * time.Millisecond)
		require.True(t, b.Withdraw(t.Context(), host))
		deposit(b, 30)
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, 3, withdrawn(b))
		deposit(b, 100)
		time.Sleep(11 * time.Second)
		assert.Equal(t, 0, withdrawn(b), "deposits too")
		time.Sleep(time.Minute)
	})
}

func TestAnHourOfLossEarnsNoMoreThanTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.fallSilent()
		b := s.budget()
		require.False(t, b.Withdraw(t.Context(), host))
		for range 3600 {
			deposit(b, 10)
			time.Sleep(time.Second)
		}
		assert.InDelta(t, 10, withdrawn(b), 1)
		time.Sleep(time.Minute)
	})
}

func TestBudgetThatNeverReachedRedisSpendsWhatItEarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan error, 100)
		b := &redisstore.Budget{Degraded: func(err error) { told <- err }}
		assert.Equal(t, 0, withdrawn(b))
		deposit(b, 30)
		assert.Equal(t, 3, withdrawn(b))
		b.Refund(t.Context(), host)
		assert.Equal(t, 1, withdrawn(b))
		assert.EqualError(t, <-told, "redisstore: Client is nil")
		time.Sleep(time.Hour)
		assert.Less(t, len(told), 20, "it stops asking when nobody uses it")
		for _, client := range []redis.UniversalClient{(*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
			b := &redisstore.Budget{Client: client}
			deposit(b, 10)
			assert.Equal(t, 1, withdrawn(b))
		}
		time.Sleep(time.Minute)
	})
}

func TestLostBudgetFailsFastWhileOneProbeAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
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
		time.Sleep(3500 * time.Millisecond)
		assert.Equal(t, []sent{{}, {}, {}}, s.took(), "a probe brings nothing that could get lost")
		time.Sleep(time.Hour)
		assert.Less(t, len(s.took()), 12, "it stops when nobody uses it")
	})
}

func TestWhatWasSpentAloneIsChargedWhenRedisIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		require.True(t, b.Withdraw(t.Context(), host))
		require.True(t, b.Withdraw(t.Context(), host))
		deposit(b, 4)
		s.answer(1, 28*unit, 3)
		s.took()
		time.Sleep(2100 * time.Millisecond)
		assert.Equal(t, []sent{{}, {earned: 4 * earns, owed: 2 * unit}}, s.took())
		require.True(t, b.Withdraw(t.Context(), host))
		assert.Equal(t, []sent{{price: unit}}, s.took(), "and only once")
		time.Sleep(time.Minute)
		assert.Empty(t, s.took())
	})
}

func TestEachOfManyProcessesHasAPartOfTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
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
		assert.Equal(t, 1, withdrawn(b), "and saves no more than one")
		time.Sleep(time.Minute)
	})
}

func TestNoMoreIsOwedThanTheFloorsPartOnceTheBalanceIsVoid(t *testing.T) {
	for _, test := range []struct {
		balance int64
		alone   int // retries spent at once
		wait    time.Duration
		later   int // and after wait
		owed    int64
	}{
		{balance: 15 * unit, alone: 5, wait: time.Second, owed: 5 * unit},
		{wait: 4 * time.Second, later: 1, owed: unit},
		{balance: 15 * unit, alone: 5, wait: 11 * time.Second, later: 3, owed: 10 * unit / 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStand(t)
			s.answer(1, test.balance, 3)
			b := s.budget()
			require.True(t, b.Withdraw(t.Context(), host))
			s.fallSilent()
			require.Equal(t, test.alone, withdrawn(b))
			time.Sleep(test.wait)
			require.Equal(t, test.later, withdrawn(b))
			s.answer(0, 10*unit, 3)
			s.took()
			time.Sleep(2100 * time.Millisecond)
			assert.Equal(t, []sent{{}, {owed: test.owed}}, s.took())
			time.Sleep(time.Minute)
		})
	}
}

func TestWhatIsOwedIsChargedEvenIfRedisIsLostAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.answer(1, 30*unit, 3)
		b := s.budget()
		require.True(t, b.Withdraw(t.Context(), host))
		s.fallSilent()
		require.True(t, b.Withdraw(t.Context(), host))
		s.answer(0, 30*unit, 3)
		time.Sleep(1500 * time.Millisecond) // the probe
		s.fallSilent()
		s.took()
		require.True(t, b.Withdraw(t.Context(), host))
		s.answer(0, 30*unit, 3)
		time.Sleep(2100 * time.Millisecond)
		assert.Equal(t, []sent{{owed: unit, price: unit}, {}, {owed: 2 * unit}}, s.took())
		time.Sleep(time.Minute)
	})
}

func TestARefusalLosesNoDepositAndSilenceDoes(t *testing.T) {
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
				s := newStand(t)
				s.refuse(lose.err)
				b := s.budget()
				told := make(chan error, 100)
				b.Degraded = func(err error) { told <- err }
				deposit(b, 20)
				assert.Equal(t, lose.kept, withdrawn(b))
				err := <-told
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

func TestAnswersThatMakeNoSenseAreLosses(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "OK", []any{}, []any{int64(1)},
		[]any{int64(1), int64(-1), int64(0), int64(1)}, []any{int64(1), int64(5), int64(0), int64(0)},
		[]any{"1", "x", nil, []any{}}, []any{int64(1), int64(1), int64(1), int64(1), int64(1)}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStand(t)
			s.set(func(context.Context) (any, error) { return reply, nil })
			b := s.budget()
			told := make(chan error, 100)
			b.Degraded = func(err error) { told <- err }
			assert.False(t, b.Withdraw(t.Context(), host), "%v", reply)
			assert.ErrorContains(t, <-told, "redisstore: the budget's script replied", "%v", reply)
			time.Sleep(time.Minute)
		})
	}
}

func TestCallsLeftBehindAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		release := make(chan struct{})
		s.set(func(context.Context) (any, error) { <-release; return nil, nil })
		var busy atomic.Int64
		b := &redisstore.Budget{Client: s.Client, Degraded: func(err error) {
			if strings.Contains(err.Error(), "1024 calls are waiting") {
				busy.Add(1)
			}
		}}
		began := time.Now()
		var all sync.WaitGroup
		for i := range 1500 {
			all.Go(func() { b.Withdraw(t.Context(), fmt.Sprint(host, i)) })
		}
		all.Wait()
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		assert.Len(t, s.took(), 1024)
		assert.EqualValues(t, 1500-1024, busy.Load())
		s.answer(0, 0, 1)
		close(release)
		time.Sleep(time.Minute)
	})
}
