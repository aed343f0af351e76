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

// A hooked is a hook that calls before, ahead of each script except probes.
type hooked struct {
	delay
	before func(ctx context.Context, cmd redis.Cmder)
}

func (h hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.before(ctx, cmd)
		return next(ctx, cmd)
	}
}

func isProbe(cmd redis.Cmder) bool { return len(cmd.Args()) == 3 }

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
	server := redistest.Shared(t)
	s := newStore(t, server)
	var on atomic.Bool
	s.Client.AddHook(hooked{before: func(_ context.Context, cmd redis.Cmder) {
		if on.Load() && !isProbe(cmd) {
			panic("hook")
		}
	}})
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	for range 20 {
		on.Store(true)
		_, err := s.Take(ctx, nil, c)
		require.Error(t, err)
		on.Store(false)
		isFound(t, s, c)
		take(t, s, c)
	}
}

func TestAHookThatPanicsInAProbeIsAnError(t *testing.T) {
	server := redistest.Shared(t)
	s := newStore(t, server)
	var on atomic.Bool
	on.Store(true)
	s.Client.AddHook(hooked{before: func(_ context.Context, cmd redis.Cmder) {
		if on.Load() {
			panic("hook")
		}
	}})
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	_, err := s.Take(ctx, nil, c)
	require.ErrorContains(t, err, "panicked")
	require.ErrorContains(t, s.Ping(ctx), "panicked")
	on.Store(false)
	isFound(t, s, c)
}

func TestACanceledCallDoesNotFailTheOthers(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	var leave atomic.Pointer[context.CancelFunc]
	s.Client.AddHook(hooked{before: func(context.Context, redis.Cmder) {
		if f := leave.Swap(nil); f != nil {
			(*f)()
		}
	}})
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	for range 200 {
		within, cancel := context.WithCancel(ctx)
		leave.Store(&cancel)
		_, err := s.Take(within, nil, c)
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.Take(ctx, nil, c)
		require.NoError(t, err)
	}
}

func TestASmallConnectionPoolDoesNotOpenTheBreaker(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.SetDelay(2 * time.Millisecond)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxActiveConns: 2})
	t.Cleanup(func() { client.Close() })
	s := &redisstore.Store{Client: client, Timeout: patient}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	var all sync.WaitGroup
	var failed atomic.Int64
	var one atomic.Value
	for range 100 {
		all.Go(func() {
			for range 20 {
				if _, err := s.Take(ctx, nil, c); err != nil {
					failed.Add(1)
					one.Store(err)
				}
			}
		})
	}
	all.Wait()
	assert.Zero(t, failed.Load(), "%v", one.Load())
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
	var allowed, failed atomic.Int64
	allowed.Add(1)
	var all sync.WaitGroup
	for range 10_000 {
		all.Go(func() {
			ds, err := s.Take(ctx, nil, c)
			if err != nil {
				failed.Add(1)
			} else if ds[0].Allowed {
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	assert.Zero(t, failed.Load())
	assert.EqualValues(t, 5000, allowed.Load())
	assert.Zero(t, redisstore.Queued(s, "key"))
}
