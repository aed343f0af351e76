package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
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

func TestAnAnswerToAcquireThatMakesNoSenseIsAnError(t *testing.T) {
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
				hold, d, err := s.Acquire(ctx, "key", 1, 1)
				require.Error(t, err)
				assert.Nil(t, hold)
				assert.Zero(t, d)
			}
		})
	}
}

func TestAnAcquireThatIsNotAnsweredIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"silence": redistest.Silence, "closed connection": redistest.HangUp, "loading": redistest.Loading,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Eventually(t, func() bool {
				fake := redistest.NewFake(t, reply)
				s := &redisstore.Store{Client: newFakeClient(t, fake)}
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
				return sent > 0 // on a busy machine its time may be over before
			}, hang, ms)
		})
	}
}

func TestAnAcquireEndsWithItsContext(t *testing.T) {
	fake := redistest.NewFake(t, redistest.Silence)
	client := redis.NewClient(&redis.Options{Addr: fake.Addr, ReadTimeout: time.Hour})
	defer client.Close()
	s := &redisstore.Store{Client: client, Timeout: time.Hour}
	call, cancel := context.WithCancel(ctx)
	go func() {
		for len(fake.Commands()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, _, err := s.Acquire(call, "key", 1, 1)
	assert.Equal(t, context.Canceled, err)
	assert.Equal(t, 1, redisstore.Held(s), "which may have been taken")
}

func TestWhoLeavesWhileItAcquiresLeavesNothingBehind(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	mustAcquire(t, s, "key", 100, 1).Release()
	door := &door{came: make(chan struct{}), open: make(chan struct{})}
	s.Client.AddHook(door)
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
	require.Eventually(t, func() bool { return redisstore.Held(s) == 0 }, hang, 10*time.Millisecond)
	_, d, err := s.Acquire(ctx, "key", 100, 1)
	require.NoError(t, err)
	assert.EqualValues(t, 99, d.Remaining)
}

// A door is a hook that keeps commands back while it is closed.
type door struct {
	closed atomic.Bool
	came   chan struct{} // for each command that is to take a place
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

func TestWhileRedisIsStoppedHoldsAreKeptAndCallsFail(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// What Redis was given and could not answer may be held until it expires, if it comes
	// to it after the word that it is not wanted.
	s := &redisstore.Store{Client: newClient(t, server), HoldTTL: 30 * time.Second}
	hold := eventually(t, s, "key", 20, 19)
	server.Stop()
	for range 30 {
		_, _, err := s.Acquire(ctx, "key", 20, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(5 * time.Millisecond)
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
	require.Eventually(t, func() bool { return redisstore.Held(s) == 0 }, hang, 10*time.Millisecond)
}

// eventually acquires places from a Store that may be broken, or may have none.
func eventually(t *testing.T, s *redisstore.Store, key string, limit, n int64) (hold *quota.Hold) {
	t.Helper()
	require.Eventually(t, func() bool {
		hold, _, _ = s.Acquire(ctx, key, limit, n)
		return hold != nil
	}, hang, 10*time.Millisecond)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return hold
}

func TestAnEmptyRedisInItsSteadIsToldWhatIsHeld(t *testing.T) {
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
	t.Parallel()
	s := &redisstore.Store{Client: newCluster(t), Timeout: patient, HoldTTL: time.Hour}
	holds, before := map[string]*quota.Hold{}, map[string]int64{}
	for i := range 30 {
		key := fmt.Sprint("key ", i)
		holds[key] = eventually(t, s, key, 2, 1)
		maps.Copy(before, expiries(t, s, "heed:quota:\x01"+key))
	}
	time.Sleep(2 * time.Millisecond) // the expiry is in ms
	redisstore.Renew(s)
	for key, hold := range holds {
		for member, expiry := range expiries(t, s, "heed:quota:\x01"+key) {
			assert.Greater(t, expiry, before[member], key)
		}
		_, d, err := s.Acquire(ctx, key, 2, 2)
		require.NoError(t, err)
		assert.False(t, d.Allowed || isLost(hold))
		hold.Release()
		mustAcquire(t, s, key, 2, 2).Release()
	}
}

func TestOfARingOnlyTheHoldsOfAShardThatStoppedAreLostAndTheyAreCountedAgain(t *testing.T) {
	t.Parallel()
	shards := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: time.Hour,
		Addrs: map[string]string{"a": shards[0].Addr, "b": shards[1].Addr, "c": shards[2].Addr}})
	defer ring.Close()
	s := &redisstore.Store{Client: ring, Timeout: 500 * ms, HoldTTL: time.Hour}
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
	stopped := time.Now()
	require.Eventually(t, func() bool { // a machine that is busy may lose a shard that is there
		redisstore.Renew(s)
		return redisstore.RenewedSince(s, stopped) == len(live)
	}, hang, ms)
	redisstore.Outlive(s, stopped)
	for key, hold := range live {
		require.Eventually(t, func() bool {
			_, d, err := s.Acquire(ctx, key, 2, 2)
			return err == nil && !d.Allowed
		}, hang, time.Millisecond, key)
		assert.False(t, isLost(hold), key)
	}
	for key, hold := range lost {
		assert.True(t, isLost(hold), key)
	}
	shards[0].Cont()
	require.NoError(t, direct.FlushAll(ctx).Err()) // what has expired
	for key := range lost {
		require.Eventually(t, func() bool {
			redisstore.Renew(s)
			return direct.Exists(ctx, "heed:quota:\x01"+key).Val() == 1
		}, hang, 10*time.Millisecond, "%s is counted again", key)
	}
}

func TestAHoldThatIsRenewedOutlivesItsTTL(t *testing.T) {
	server := redistest.Shared(t)
	s, other := newStore(t, server), newStore(t, server)
	s.HoldTTL = time.Hour
	hold := mustAcquire(t, s, "key", 3, 2)
	for range 3 {
		for member := range expiries(t, s, gateKey) { // as if most of its time were over
			soon := float64(time.Now().Add(hang).UnixMilli())
			require.NoError(t, s.Client.ZAddXX(ctx, gateKey, redis.Z{Score: soon, Member: member}).Err())
			require.NoError(t, s.Client.Expire(ctx, gateKey, hang).Err())
		}
		began := time.Now()
		redisstore.Renew(s)
		for _, expiry := range expiries(t, s, gateKey) {
			assert.GreaterOrEqual(t, expiry, began.Add(time.Hour).UnixMilli())
		}
		expiresIn(t, s.Client, gateKey, time.Hour+time.Second, began)
		_, d, err := other.Acquire(ctx, "key", 3, 2)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.EqualValues(t, 1, d.Remaining)
	}
	assert.False(t, isLost(hold))
	hold.Release()
	mustAcquire(t, other, "key", 3, 3).Release()
}

func TestAHoldIsRenewedInTimeByTheRealClockToo(t *testing.T) {
	testenv.NeedLong(t)
	server := redistest.Shared(t)
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
	s := newStore(t, redistest.Shared(t))
	for range 5 {
		_, d, err := s.Acquire(ctx, "key", 5, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.Eventually(t, func() bool { runtime.GC(); return s.Dropped() == 5 && redisstore.Held(s) == 0 }, hang, 5*time.Millisecond)
	mustAcquire(t, s, "key", 5, 5).Release()
	assert.EqualValues(t, 5, s.Dropped())
}

func TestWithTheClientClosedAReleaseDoesNotHang(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	s := &redisstore.Store{Client: client, Timeout: time.Hour, HoldTTL: 200 * time.Millisecond}
	hold := mustAcquire(t, s, "key", 1, 1)
	require.NoError(t, client.Close())
	hold.Release()
	_, _, err := s.Acquire(ctx, "key", 1, 1)
	assert.True(t, errors.Is(err, redis.ErrClosed), err)
	require.Eventually(t, func() bool { return redisstore.Held(s) == 0 }, hang, 10*time.Millisecond)
}
