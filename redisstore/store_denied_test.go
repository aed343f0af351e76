package redisstore_test

import (
	"context"
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

// A scriptCounter is a hook that counts scripts, without probes.
type scriptCounter struct{ n atomic.Int64 }

func (*scriptCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scriptCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && len(cmd.Args()) > len([]string{"evalsha", "digest", "1", "key"}) {
			s.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (*scriptCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// asks returns a function that returns how many scripts s, a new Store, has executed since its last call.
func asks(s *redisstore.Store) func() int64 {
	c := new(scriptCounter)
	s.Client.AddHook(c)
	return func() int64 { return c.n.Swap(0) }
}

// A clock is the clock of a Store's denials, which a test sets.
type clock struct{ now time.Time }

// inOneMoment stops the clock of s's denials until the test sets it.
func inOneMoment(s *redisstore.Store) *clock {
	c := &clock{time.Now()}
	redisstore.RememberBy(s, func() time.Time { return c.now })
	return c
}

// A refund by process A is seen by process B within a second.
func TestARefundIsSeenByOtherProcessesWithinASecond(t *testing.T) {
	server := redistest.Shared(t)
	for name, giveBack := range map[string]func(a *redisstore.Store, c quota.Charge) error{
		"refund": func(a *redisstore.Store, c quota.Charge) error { c.N = -1; return a.Settle(ctx, c) },
		"reset":  func(a *redisstore.Store, c quota.Charge) error { return a.Reset(ctx, c.Key) },
	} {
		a, b := newStore(t, server), newStore(t, server)
		clock, asked := inOneMoment(b), asks(b)
		c := quota.Charge{Key: name, Limit: compile(t, quota.PerDay(1))}
		require.True(t, take(t, a, c)[0].Allowed)
		require.False(t, take(t, b, c)[0].Allowed)
		asked()
		require.NoError(t, giveBack(a, c))
		clock.now = clock.now.Add(time.Second - time.Millisecond)
		assert.False(t, take(t, b, c)[0].Allowed, name)
		assert.Zero(t, asked(), name)
		clock.now = clock.now.Add(time.Millisecond)
		assert.True(t, take(t, b, c)[0].Allowed, name)
	}
}

// Limits of one name are distinguished by their numbers, so that a raised limit applies at once.
func TestARaisedLimitIsSeenAtOnce(t *testing.T) {
	server := redistest.Shared(t)
	a, b := newStore(t, server), newStore(t, server)
	inOneMoment(b)
	c := quota.Charge{Key: "key", Limit: compile(t, quota.Policy{Name: "api", Quota: 1, Window: time.Hour})}
	require.True(t, take(t, a, c)[0].Allowed)
	require.False(t, take(t, b, c)[0].Allowed)
	raised := c
	raised.Limit = compile(t, quota.Policy{Name: "api", Quota: 2, Window: time.Hour})
	assert.True(t, take(t, b, raised)[0].Allowed)
}

// A key that stays denied costs one script a second.
func TestADeniedKeyIsAskedForOnceASecond(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	clock, asked := inOneMoment(s), asks(s)
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	require.True(t, take(t, s, c)[0].Allowed)
	asked()
	for range 100 {
		require.False(t, take(t, s, c)[0].Allowed)
		clock.now = clock.now.Add(100 * time.Millisecond)
	}
	assert.EqualValues(t, 10, asked())
}

func TestARememberedDenialNeedsNoRedis(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	inOneMoment(s)
	asked := asks(s)
	c := quota.Charge{Key: "key", N: 2, Limit: compile(t, quota.PerDay(5))}
	for range 2 {
		require.True(t, take(t, s, c)[0].Allowed)
	}
	first := take(t, s, c)[0]
	require.False(t, first.Allowed)
	assert.EqualValues(t, 3, asked())
	for range 10 {
		d := take(t, s, c)[0]
		assert.False(t, d.Allowed)
		assert.EqualValues(t, 1, d.Remaining)
		assert.WithinDuration(t, first.At.Add(first.RetryAfter), d.At.Add(d.RetryAfter), 0, "the same time")
		assert.WithinDuration(t, first.At.Add(first.ResetAfter), d.At.Add(d.ResetAfter), 0)
		assert.False(t, d.At.Before(first.At))
	}
	assert.Zero(t, asked())

	ds, err := s.Peek(ctx, nil, c)
	require.NoError(t, err)
	assert.False(t, ds[0].Allowed)
	assert.EqualValues(t, 1, asked(), "Peek always asks")

	raised := c
	raised.Limit = compile(t, quota.Policy{Name: c.Limit.Name(), Quota: 6, Window: 24 * time.Hour})
	assert.True(t, take(t, s, raised)[0].Allowed)
	assert.EqualValues(t, 1, asked())
	require.NoError(t, s.Settle(ctx, quota.Charge{Key: "key", N: -2, Limit: c.Limit}))
	require.False(t, take(t, s, c)[0].Allowed)
	asked()

	cheap := c
	cheap.N = 1
	assert.True(t, take(t, s, cheap)[0].Allowed)
	for range 3 {
		assert.False(t, take(t, s, cheap)[0].Allowed)
	}
	assert.EqualValues(t, 2, asked(), "then it is remembered too")
}

func TestARefundByTheSameStoreIsSeenAtOnce(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	require.True(t, take(t, s, c)[0].Allowed)
	for range 2 {
		require.False(t, take(t, s, c)[0].Allowed)
	}
	require.NoError(t, s.Settle(ctx, quota.Charge{Key: "key", N: -1, Limit: c.Limit}))
	assert.True(t, take(t, s, c)[0].Allowed)
	require.False(t, take(t, s, c)[0].Allowed)
	require.NoError(t, s.Reset(ctx, "key"))
	assert.True(t, take(t, s, c)[0].Allowed)
}

func TestAlwaysAskSeesRefundsOfOthersAtOnce(t *testing.T) {
	server := redistest.Shared(t)
	s, other := newStore(t, server), newStore(t, server)
	inOneMoment(s)
	asking := &redisstore.Store{Client: s.Client, Timeout: patient, AlwaysAsk: true}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	require.True(t, take(t, s, c)[0].Allowed)
	require.False(t, take(t, s, c)[0].Allowed)
	require.False(t, take(t, asking, c)[0].Allowed)
	require.NoError(t, other.Settle(ctx, quota.Charge{Key: "key", N: -1, Limit: c.Limit}))
	assert.False(t, take(t, s, c)[0].Allowed, "a second is not over")
	assert.True(t, take(t, asking, c)[0].Allowed)
}

func TestAChargeWithAnIDAlwaysAsksRedis(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1)), ID: "request 1"}
	require.True(t, take(t, s, c)[0].Allowed)
	plain := c
	plain.ID = ""
	require.False(t, take(t, s, plain)[0].Allowed)
	assert.True(t, take(t, s, c)[0].Allowed, "the same ID was charged before")
}

func TestReservationsAndDryRunsAlwaysAskRedis(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	inOneMoment(s)
	asked := asks(s)
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	require.True(t, take(t, s, c)[0].Allowed)
	require.False(t, take(t, s, c)[0].Allowed)
	asked()
	dry := c
	dry.DryRun = true
	assert.True(t, take(t, s, dry)[0].Allowed)
	assert.EqualValues(t, 1, asked())
	for range 2 {
		assert.False(t, take(t, s, dry)[0].Allowed)
		assert.EqualValues(t, 1, asked(), "other calls do not change what is remembered")
	}
	assert.False(t, take(t, s, c)[0].Allowed)
	assert.Zero(t, asked())

	_, _, ok, err := s.Reserve(ctx, time.Hour, c)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.EqualValues(t, 1, asked())
	_, _, ok, err = s.Reserve(ctx, 25*time.Hour, c)
	require.NoError(t, err)
	assert.True(t, ok, "a reservation with a long enough wait succeeds")
	assert.EqualValues(t, 1, asked())
	for range 3 {
		d := take(t, s, c)[0]
		assert.False(t, d.Allowed)
		assert.Greater(t, d.RetryAfter, 47*time.Hour, "a reservation is seen at once")
	}
	assert.EqualValues(t, 1, asked())
}

// A denial of one Key is remembered with the buckets of all Keys of the call.
func TestADenialOfSeveralKeysOnARingIsRemembered(t *testing.T) {
	ring := newRing(t)
	s := &redisstore.Store{Client: ring, Timeout: patient}
	inOneMoment(s)
	asked := asks(s)
	wide := quota.Charge{Key: "wide", Limit: compile(t, quota.PerDay(100))}
	narrow := quota.Charge{Key: "narrow", N: 2, Limit: compile(t, quota.PerDay(3))}
	other := quota.Charge{Key: "other", N: 2, Limit: compile(t, quota.PerDay(2))}
	require.True(t, take(t, s, wide, narrow)[1].Allowed)
	asked()
	for range 5 {
		ds := take(t, s, wide, narrow)
		assert.True(t, ds[0].Allowed)
		assert.EqualValues(t, 99, ds[0].Remaining)
		assert.False(t, ds[1].Allowed)
		assert.EqualValues(t, 1, ds[1].Remaining)
	}
	assert.LessOrEqual(t, asked(), int64(3))
	require.True(t, take(t, s, other)[0].Allowed)
	asked()
	for range 5 { // when narrow denies, other is given back
		narrow.N = 2
		assert.False(t, take(t, s, other, narrow, wide)[1].Allowed)
	}
	assert.LessOrEqual(t, asked(), int64(4))
}

// This measures a decision from memory.
func BenchmarkDenied(b *testing.B) {
	s := newStore(b, redistest.Shared(b))
	c := quota.Charge{Key: "user:12345", Limit: compile(b, quota.PerDay(1))}
	inOneMoment(s)
	for range 2 {
		take(b, s, c)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		dst := make([]quota.Decision, 0, 1)
		for b.Loop() {
			s.Take(ctx, dst, c)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]quota.Decision, 0, 1)
			for pb.Next() {
				s.Take(ctx, dst, c)
			}
		})
	})
	b.Run("PING, for comparison", func(b *testing.B) {
		client := s.Client.(*redis.Client)
		for b.Loop() {
			client.Ping(ctx)
		}
	})
}
