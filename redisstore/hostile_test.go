package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAShardThatReturnsToARingIsFoundAgain(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": proxy.Addr()}})
	t.Cleanup(func() { ring.Close() })
	s := &redisstore.Store{Client: ring, Timeout: 200 * time.Millisecond}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	ring.SetAddrs(map[string]string{"b": server.Addr})
	isFound(t, s, c)
	ring.SetAddrs(map[string]string{"a": proxy.Addr()})
	proxy.Swallow(true)
	_, err := s.Take(ctx, nil, c)
	require.Error(t, err)
	proxy.Swallow(false)
	proxy.Reset()
	isFound(t, s, c)
}

func TestAPanicOfAHookFailsOneCallOnly(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	var inProbes, inScripts atomic.Bool
	s.Client.AddHook(hook(func(cmds []redis.Cmder, next func() error) error {
		if scriptsIn(cmds) > 0 && inScripts.Load() || scriptsIn(cmds) == 0 && inProbes.Load() {
			panic("hook")
		}
		return next()
	}))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	inProbes.Store(true)
	_, err := s.Take(ctx, nil, c)
	require.ErrorContains(t, err, "panicked")
	require.ErrorContains(t, s.Ping(ctx), "panicked")
	inProbes.Store(false)
	for range 20 {
		isFound(t, s, c)
		inScripts.Store(true)
		_, err := s.Take(ctx, nil, c)
		require.Error(t, err)
		inScripts.Store(false)
	}
}

func TestACanceledCallDoesNotFailTheOthers(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	var leave atomic.Pointer[context.CancelFunc]
	s.Client.AddHook(hook(func(_ []redis.Cmder, next func() error) error {
		if f := leave.Swap(nil); f != nil {
			(*f)()
		}
		return next()
	}))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	for range 200 {
		within, cancel := context.WithCancel(ctx)
		leave.Store(&cancel)
		_, err := s.Take(within, nil, c)
		require.ErrorIs(t, err, context.Canceled)
		take(t, s, c)
	}
}

func TestASmallConnectionPoolDoesNotOpenTheBreaker(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr)
	proxy.SetDelay(2 * time.Millisecond)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxActiveConns: 2})
	t.Cleanup(func() { client.Close() })
	s := &redisstore.Store{Client: client, Timeout: patient}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	callers(100, 20, func(_, _ int) {
		_, err := s.Take(ctx, nil, c)
		assert.NoError(t, err)
	})
}

func TestStoresThatShareAFarClientDoNotExhaustItsPool(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.SetDelay(5 * time.Millisecond)
	client := redis.NewClient(&redis.Options{ // with times that a busy machine does not reach
		Addr: proxy.Addr(), PoolSize: 20, PoolTimeout: hang / 3, DialTimeout: hang,
	})
	t.Cleanup(func() { client.Close() })
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			s := &redisstore.Store{Client: client}
			isFound(t, s, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))})
		})
	}
	all.Wait()
	assert.Zero(t, client.PoolStats().Timeouts, "no call waits for the client's PoolTimeout")
}

func TestPingsWithoutAnswerLeaveConnectionsToTheClient(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), ReadTimeout: -1, PoolSize: 5, DialTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { client.Close() })
	s := &redisstore.Store{Client: client}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	proxy.Swallow(true)
	for range 20 {
		within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		assert.Error(t, s.Ping(within))
		cancel()
	}
	proxy.Swallow(false) // earlier commands are still never answered
	isFound(t, s, c)
}

func TestTenThousandConcurrentCalls(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	s.Timeout = 20 * time.Second
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(5000))}
	isFound(t, s, c)
	var allowed atomic.Int64
	callers(10_000, 1, func(_, _ int) { assert.NoError(t, takes(s, c, &allowed)()) })
	assert.EqualValues(t, 5000-1, allowed.Load())
	assert.Zero(t, redisstore.Queued(s, "key"))
}
