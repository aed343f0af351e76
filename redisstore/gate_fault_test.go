package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAGateWithoutAClientSaysSo(t *testing.T) {
	s := new(redisstore.Store)
	hold, d, err := s.Acquire(ctx, "key", 1, 1)
	assert.EqualError(t, err, "redisstore: Client is nil")
	assert.Nil(t, hold)
	assert.Zero(t, d)
	assert.Zero(t, redisstore.Held(s))
}

func TestAnAcquireThatCannotBeRightIsNotSent(t *testing.T) {
	fake := redistest.NewFake(t, redistest.Silence)
	s := &redisstore.Store{Client: newFakeClient(t, fake)}
	_, _, err := s.Acquire(ctx, "key", 0, 1)
	assert.ErrorAs(t, err, new(*quota.AcquireError))
	assert.Empty(t, fake.Commands())
}

func newFakeClient(t *testing.T, fake *redistest.Fake) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: fake.Addr})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestAnAnswerToAcquireThatMakesNoSenseIsAnErrorInTime(t *testing.T) {
	for name, reply := range map[string]string{
		"wrong type":        redistest.WrongType,
		"loading":           redistest.Loading,
		"no script, ever":   redistest.NoScript,
		"garbage":           redistest.Garbage,
		"silence":           redistest.Silence,
		"closed connection": redistest.HangUp,
		"nil":               "$-1\r\n",
		"a status":          "+OK\r\n",
		"an empty list":     "*0\r\n",
		"a short list":      "*3\r\n:1\r\n:0\r\n:0\r\n",
		"a long list":       "*5\r\n:1\r\n:0\r\n:0\r\n:1\r\n:1\r\n",
		"strings":           "*4\r\n$1\r\n1\r\n:0\r\n:0\r\n:1\r\n",
		"negative numbers":  "*4\r\n:1\r\n:-1\r\n:0\r\n:1\r\n",
		"numbers too large": "*4\r\n:1\r\n:9007199254740992\r\n:0\r\n:1\r\n",
		"half a reply":      "*4\r\n:1\r\n:0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := &redisstore.Store{Client: newFakeClient(t, redistest.NewFake(t, reply))}
			for range 3 {
				begin := time.Now()
				hold, d, err := s.Acquire(ctx, "key", 1, 1)
				require.Error(t, err)
				assert.Nil(t, hold)
				assert.Zero(t, d)
				require.Less(t, time.Since(begin), 50*time.Millisecond+slack)
			}
		})
	}
}

func TestB75AnAcquireThatIsNotAnsweredIsSentOnce(t *testing.T) {
	for name, reply := range map[string]string{
		"silence": redistest.Silence, "closed connection": redistest.HangUp, "loading": redistest.Loading,
	} {
		t.Run(name, func(t *testing.T) {
			fake := redistest.NewFake(t, reply)
			s := &redisstore.Store{Client: newFakeClient(t, fake)}
			_, _, err := s.Acquire(ctx, "key", 1, 1)
			require.Error(t, err)
			time.Sleep(300 * time.Millisecond)
			sent := 0
			for _, command := range fake.Commands() {
				if len(command) > 5 && command[5] == "take" {
					sent++
				}
			}
			assert.Equal(t, 1, sent, "%q", fake.Commands())
		})
	}
}

func TestAnAcquireEndsWithItsContext(t *testing.T) {
	fake := redistest.NewFake(t, redistest.Silence)
	s := &redisstore.Store{Client: newFakeClient(t, fake), Timeout: patient}
	call, cancel := context.WithCancel(ctx)
	var left time.Time
	go func() {
		for len(fake.Commands()) == 0 {
			time.Sleep(time.Millisecond)
		}
		left = time.Now()
		cancel()
	}()
	_, _, err := s.Acquire(call, "key", 1, 1)
	assert.Equal(t, context.Canceled, err)
	assert.Less(t, time.Since(left), slack)
	assert.Equal(t, 1, redisstore.Held(s), "which may have been taken")
}

func TestWhoLeavesWhileItAcquiresLeavesNothingBehind(t *testing.T) {
	s := newStore(t, redistest.Start(t))
	mustAcquire(t, s, "key", 100, 1).Release()
	s.Client.AddHook(delay(20 * time.Millisecond))
	for range 10 {
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		hold, _, err := s.Acquire(short, "key", 100, 1)
		cancel()
		require.Equal(t, context.DeadlineExceeded, err)
		require.Nil(t, hold)
	}
	require.Eventually(t, func() bool { return redisstore.Held(s) == 0 }, 10*time.Second, 10*time.Millisecond)
	_, d, err := s.Acquire(ctx, "key", 100, 1)
	require.NoError(t, err)
	assert.EqualValues(t, 99, d.Remaining)
}

func TestWhileRedisIsStoppedHoldsAreKeptAndCallsFailInTime(t *testing.T) {
	server := redistest.Start(t)
	s := &redisstore.Store{Client: newClient(t, server), HoldTTL: 5 * time.Second}
	hold := eventually(t, s, "key", 20, 19)
	server.Stop()
	for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(5 * time.Millisecond) {
		one := time.Now()
		_, _, err := s.Acquire(ctx, "key", 20, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(one), 50*time.Millisecond+slack)
	}
	assert.False(t, isLost(hold))

	server.Cont()
	patiently := newStore(t, server)
	_, d, err := patiently.Acquire(ctx, "key", 19, 1)
	require.NoError(t, err)
	assert.False(t, d.Allowed, "what was held is")
	eventually(t, s, "key", 20, 1).Release() // Redis was given some before it stopped: they are dropped
	hold.Release()
	eventually(t, s, "key", 20, 20).Release()
	require.Eventually(t, func() bool { return redisstore.Held(s) == 0 }, 10*time.Second, 10*time.Millisecond)
}

// eventually acquires places from a Store that may be broken, or may have none.
func eventually(t *testing.T, s *redisstore.Store, key string, limit, n int64) (hold *quota.Hold) {
	t.Helper()
	require.Eventually(t, func() bool {
		hold, _, _ = s.Acquire(ctx, key, limit, n)
		return hold != nil
	}, 10*time.Second, 10*time.Millisecond)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return hold
}

func TestAnEmptyRedisInItsSteadIsToldWhatIsHeld(t *testing.T) {
	server := redistest.Start(t)
	s := &redisstore.Store{Client: newClient(t, server)}
	hold := eventually(t, s, "key", 20, 20)
	server.Kill()
	_, _, err := s.Acquire(ctx, "key", 20, 1)
	require.Error(t, err)
	server.Restart()
	back := time.Now()
	other := newStore(t, server)
	require.Eventually(t, func() bool { return other.Client.Exists(ctx, gateKey).Val() == 1 }, 5*time.Second, 5*time.Millisecond)
	assert.Less(t, time.Since(back), time.Second+slack)
	_, d, err := other.Acquire(ctx, "key", 20, 1)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.False(t, isLost(hold))
}

func TestOnAClusterHoldsOfEveryMasterAreRenewed(t *testing.T) {
	s := &redisstore.Store{Client: newCluster(t), Timeout: patient, HoldTTL: 1500 * time.Millisecond}
	var holds []*quota.Hold
	for i := range 30 {
		holds = append(holds, eventually(t, s, fmt.Sprint("key ", i), 2, 1))
	}
	time.Sleep(2 * s.HoldTTL)
	for i, hold := range holds {
		_, d, err := s.Acquire(ctx, fmt.Sprint("key ", i), 2, 2)
		require.NoError(t, err)
		assert.False(t, d.Allowed || isLost(hold))
		hold.Release()
		mustAcquire(t, s, fmt.Sprint("key ", i), 2, 2).Release()
	}
}

func TestOfARingOnlyTheHoldsOfAShardThatStoppedAreLostAndTheyAreCountedAgain(t *testing.T) {
	shards := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: time.Hour,
		Addrs: map[string]string{"a": shards[0].Addr, "b": shards[1].Addr, "c": shards[2].Addr}})
	defer ring.Close()
	s := &redisstore.Store{Client: ring, Timeout: slack, HoldTTL: 3 * time.Second}
	direct := newClient(t, shards[0])
	live, lost := map[string]*quota.Hold{}, map[string]*quota.Hold{}
	for i := range 30 {
		key := fmt.Sprint("key ", i)
		hold := eventually(t, s, key, 2, 1)
		if direct.Exists(ctx, "heed:quota:\x01"+key).Val() == 1 {
			lost[key] = hold
		} else {
			live[key] = hold
		}
	}
	require.NotEmpty(t, live)
	require.NotEmpty(t, lost)
	shards[0].Stop()
	defer shards[0].Cont()
	time.Sleep(s.HoldTTL + time.Second)
	for key, hold := range live {
		require.Eventually(t, func() bool {
			_, d, err := s.Acquire(ctx, key, 2, 2)
			return err == nil && !d.Allowed
		}, 5*time.Second, time.Millisecond, key)
		assert.False(t, isLost(hold), key)
	}
	for key, hold := range lost {
		assert.True(t, isLost(hold), key)
	}
	shards[0].Cont()
	for key := range lost {
		require.Eventually(t, func() bool { return direct.Exists(ctx, "heed:quota:\x01"+key).Val() == 1 },
			5*time.Second, 10*time.Millisecond, "%s is counted again", key)
	}
}

func TestAHoldThatIsRenewedOutlivesItsTTL(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server)
	s.HoldTTL = 1500 * time.Millisecond
	hold := mustAcquire(t, s, "key", 3, 2)
	other := newStore(t, server)
	for begin := time.Now(); time.Since(begin) < 3*s.HoldTTL; time.Sleep(5 * time.Millisecond) {
		_, d, err := other.Acquire(ctx, "key", 3, 2)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.EqualValues(t, 1, d.Remaining)
	}
	assert.False(t, isLost(hold))
	hold.Release()
	mustAcquire(t, other, "key", 3, 3).Release()
}

func TestAHoldThatIsDroppedIsGivenBackToRedisAndCounted(t *testing.T) {
	s := newStore(t, redistest.Start(t))
	for range 5 {
		_, d, err := s.Acquire(ctx, "key", 5, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.Eventually(t, func() bool { runtime.GC(); return s.Dropped() == 5 && redisstore.Held(s) == 0 }, 5*time.Second, 5*time.Millisecond)
	mustAcquire(t, s, "key", 5, 5).Release()
	assert.EqualValues(t, 5, s.Dropped())
}

func TestWithTheClientClosedAReleaseDoesNotHang(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	s := &redisstore.Store{Client: client, Timeout: patient, HoldTTL: 200 * time.Millisecond}
	hold := mustAcquire(t, s, "key", 1, 1)
	require.NoError(t, client.Close())
	begin := time.Now()
	hold.Release()
	assert.Less(t, time.Since(begin), slack)
	_, _, err := s.Acquire(ctx, "key", 1, 1)
	assert.True(t, errors.Is(err, redis.ErrClosed), err)
	require.Eventually(t, func() bool { return redisstore.Held(s) == 0 }, 5*time.Second, 10*time.Millisecond)
}
