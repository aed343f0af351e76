package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAcquireWithoutAClientFails(t *testing.T) {
	s := new(redisstore.Store)
	hold, d, err := s.Acquire(ctx, "key", 1, 1)
	assert.EqualError(t, err, "redisstore: Client is nil")
	assert.Nil(t, hold)
	assert.Zero(t, d)
}

func TestAnInvalidAcquireIsNotSent(t *testing.T) {
	fake := redistest.NewFake(t, redistest.Silence)
	s := &redisstore.Store{Client: newFakeClient(t, fake)}
	_, _, err := s.Acquire(ctx, "key", 0, 1)
	assert.ErrorAs(t, err, new(*quota.AcquireError))
	assert.Empty(t, fake.Commands())
}

// fakeStore returns a Store on a Fake that has answered a ping, and then sends reply.
func fakeStore(t *testing.T, timeout time.Duration, reply string) (*redisstore.Store, *redistest.Fake) {
	fake := redistest.NewFake(t, ":1\r\n")
	s := &redisstore.Store{Client: newFakeClient(t, fake), Timeout: timeout}
	require.NoError(t, s.Ping(ctx))
	fake.Say(reply)
	return s, fake
}

func newFakeClient(t *testing.T, fake *redistest.Fake) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: fake.Addr})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestAnInvalidReplyToAcquireIsAnError(t *testing.T) {
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
			s, _ := fakeStore(t, 0, reply)
			for range 3 {
				hold, d, err := s.Acquire(ctx, "key", 1, 1)
				require.Error(t, err)
				assert.Nil(t, hold)
				assert.Zero(t, d)
			}
		})
	}
}

func TestAnAcquireWithoutAnswerIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"silence": redistest.Silence, "closed connection": redistest.HangUp, "loading": redistest.Loading,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Eventually(t, func() bool {
				s, fake := fakeStore(t, 0, reply)
				_, _, err := s.Acquire(ctx, "key", 1, 1)
				assert.Error(t, err)
				time.Sleep(300 * time.Millisecond)
				sent := 0
				for _, command := range fake.Commands() {
					if len(command) > 5 && command[5] == "take" {
						sent++
					}
				}
				assert.LessOrEqual(t, sent, 1, "%q", fake.Commands())
				return sent > 0 // on a busy machine the Timeout may end before
			}, hang, ms)
		})
	}
}

func TestAnAcquireEndsWithItsContext(t *testing.T) {
	s, fake := fakeStore(t, time.Hour, redistest.Silence)
	sent := func(verb string) bool {
		isVerb := func(command []string) bool { return len(command) > 5 && command[5] == verb }
		return slices.ContainsFunc(fake.Commands(), isVerb)
	}
	call, cancel := context.WithCancel(ctx)
	go func() {
		for !sent("take") {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, _, err := s.Acquire(call, "key", 1, 1)
	assert.Equal(t, context.Canceled, err)
	assert.Eventually(t, func() bool { return sent("drop") }, hang, ms, "places that may have been taken")
}

func TestACanceledAcquireLeavesNoPlaceTaken(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	door := &door{came: make(chan struct{}), open: make(chan struct{})}
	s.Client.AddHook(door)
	mustAcquire(t, s, "key", 100, 1).Release()
	door.closed.Store(true)
	for range 10 {
		call, cancel := context.WithCancel(ctx)
		go func() { <-door.came; cancel() }()
		hold, _, err := s.Acquire(call, "key", 100, 1)
		require.Equal(t, context.Canceled, err)
		require.Nil(t, hold)
	}
	door.closed.Store(false)
	close(door.open)
	require.Eventually(t, func() bool {
		hold, d, err := s.Acquire(ctx, "key", 100, 1)
		hold.Release()
		return err == nil && d.Remaining == 99
	}, hang, 10*ms)
}

// A door is a hook that holds commands back while it is closed.
type door struct {
	closed atomic.Bool
	came   chan struct{} // for each take
	open   chan struct{}
}

func (d *door) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *door) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *door) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.closed.Load() {
			if args := cmd.Args(); len(args) == 8 && args[5] == "take" {
				d.came <- struct{}{}
			}
			<-d.open
		}
		return next(ctx, cmd)
	}
}

func TestHoldsStayAndCallsFailWhileRedisIsStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// A take that Redis got before it stopped, and executes after the drop of the same entry,
	// holds its place until it expires.
	s := &redisstore.Store{Client: newClient(t, server), HoldTTL: 30 * time.Second}
	hold := eventually(t, s, "key", 20, 19)
	server.Stop()
	for range 30 {
		_, _, err := s.Acquire(ctx, "key", 20, 1)
		require.Error(t, err)
		time.Sleep(5 * time.Millisecond)
	}
	assert.False(t, isLost(hold))

	server.Cont()
	patiently := newStore(t, server)
	_, d, err := patiently.Acquire(ctx, "key", 19, 1)
	require.NoError(t, err)
	assert.False(t, d.Allowed, "the holds are still there")
	eventually(t, s, "key", 20, 1).Release() // takes that Redis got before it stopped are dropped
	hold.Release()
	eventually(t, s, "key", 20, 20).Release()
}

// eventually acquires places, and repeats that after errors and denials.
func eventually(t *testing.T, s *redisstore.Store, key string, limit, n int64) (hold *quota.Hold) {
	t.Helper()
	require.Eventually(t, func() bool {
		hold, _, _ = s.Acquire(ctx, key, limit, n)
		return hold != nil
	}, hang, 10*time.Millisecond)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return hold
}

func TestHoldsAreRestoredInAnEmptyRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &redisstore.Store{Client: newClient(t, server), HoldTTL: time.Hour}
	hold := eventually(t, s, "key", 20, 20)
	server.Kill()
	_, _, err := s.Acquire(ctx, "key", 20, 1)
	require.Error(t, err)
	server.Restart()
	other := newStore(t, server)
	require.Eventually(t, func() bool { return other.Client.Exists(ctx, gateKey).Val() == 1 }, hang, 5*time.Millisecond)
	_, d, err := other.Acquire(ctx, "key", 20, 1)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.False(t, isLost(hold))
}

func TestOnAClusterHoldsOfEveryMasterAreRenewed(t *testing.T) {
	t.Parallel() // it waits for renewals
	s := &redisstore.Store{Client: newCluster(t), Timeout: patient, HoldTTL: patient}
	holds, keys := map[string]*quota.Hold{}, []string{}
	for i := range 30 {
		key := fmt.Sprint("key ", i)
		holds[key] = eventually(t, s, key, 2, 1)
		keys = append(keys, "heed:quota:2:\x01"+key)
	}
	renewed(t, s, keys...)
	for key, hold := range holds {
		_, d, err := s.Acquire(ctx, key, 2, 2)
		require.NoError(t, err)
		assert.False(t, d.Allowed || isLost(hold))
		hold.Release()
		mustAcquire(t, s, key, 2, 2).Release()
	}
}

func TestOnARingOnlyAStoppedShardLosesHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := map[string]*gateFake{"a:1": newGateFake(t), "b:1": newGateFake(t), "c:1": newGateFake(t)}
		ring := redis.NewRing(&redis.RingOptions{
			Addrs:              map[string]string{"a": "a:1", "b": "b:1", "c": "c:1"},
			HeartbeatFrequency: 24 * time.Hour,
			NewClient:          func(o *redis.Options) *redis.Client { return shards[o.Addr].Client },
		})
		defer ring.Close()
		s := &redisstore.Store{Client: ring}
		live, lost := map[string]*quota.Hold{}, map[string]*quota.Hold{}
		for i := range 30 {
			key := fmt.Sprint("key ", i)
			hold := mustAcquire(t, s, key, 2, 1)
			if shards["a:1"].inUse(key) == 1 {
				lost[key] = hold
			} else {
				live[key] = hold
			}
		}
		require.NotEmpty(t, live)
		require.NotEmpty(t, lost)

		shards["a:1"].set(silent)
		time.Sleep(time.Minute)
		for key, hold := range live {
			assert.False(t, isLost(hold), key)
			assert.EqualValues(t, 1, shards["b:1"].inUse(key)+shards["c:1"].inUse(key), key)
		}
		for key, hold := range lost {
			assert.True(t, isLost(hold), key)
			assert.Zero(t, shards["a:1"].inUse(key), key)
		}

		shards["a:1"].set(well)
		time.Sleep(time.Second)
		for key, hold := range lost {
			assert.EqualValues(t, 1, shards["a:1"].inUse(key), key)
			hold.Release()
		}
		for _, hold := range live {
			hold.Release()
		}
		for _, shard := range shards {
			shard.isForgotten(t)
		}
	})
}

func TestAHoldIsRenewedInTimeByARealClock(t *testing.T) {
	t.Parallel() // it waits for renewals
	server := redistest.Shared(t)
	s, other := newStore(t, server), newStore(t, server)
	s.HoldTTL = patient
	hold := mustAcquire(t, s, "key", 3, 2)
	renewals := 1
	if testenv.Long() {
		renewals = 4 // so that it outlives HoldTTL
	}
	for range renewals {
		began := time.Now()
		renewed(t, s, gateKey)
		expiresIn(t, s.Client, gateKey, s.HoldTTL+time.Second, began)
		_, d, err := other.Acquire(ctx, "key", 3, 2)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.EqualValues(t, 1, d.Remaining)
	}
	assert.False(t, isLost(hold))
	hold.Release()
	mustAcquire(t, other, "key", 3, 3).Release()
}

func TestAGarbageHoldIsGivenBackAndCounted(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	for range 5 {
		_, d, err := s.Acquire(ctx, "key", 5, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		hold, _, err := s.Acquire(ctx, "key", 5, 5)
		hold.Release()
		return err == nil && hold != nil
	}, hang, 5*time.Millisecond)
	assert.EqualValues(t, 5, s.Dropped())
}

func TestAReleaseWithAClosedClientDoesNotHang(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	s := &redisstore.Store{Client: client, Timeout: time.Hour, HoldTTL: 200 * time.Millisecond}
	hold := mustAcquire(t, s, "key", 1, 1)
	require.NoError(t, client.Close())
	hold.Release()
	_, _, err := s.Acquire(ctx, "key", 1, 1)
	assert.True(t, errors.Is(err, redis.ErrClosed), err)
}
