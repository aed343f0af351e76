package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A valve is a hook that counts scripts and round trips, in pipelines too. It holds them back until it is
// opened, unless it is off.
type valve struct {
	delay
	off     *atomic.Bool
	open    chan struct{}
	scripts *atomic.Int64
	trips   *atomic.Int64
}

func newValve() valve {
	return valve{off: new(atomic.Bool), open: make(chan struct{}), scripts: new(atomic.Int64), trips: new(atomic.Int64)}
}

func (v valve) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		v.pass(cmd)
		return next(ctx, cmd)
	}
}

func (v valve) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		v.pass(cmds...)
		return next(ctx, cmds)
	}
}

func (v valve) pass(cmds ...redis.Cmder) {
	call := false
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" && len(cmd.Args()) > 4 && !v.off.Load() { // not a probe
			v.scripts.Add(1)
			call = true
		}
	}
	if call && !v.off.Load() {
		v.trips.Add(1)
		<-v.open
	}
}

// together first fills the connections to the server of first with batches, then starts calls and releases
// all. It returns the results of calls.
func together(t *testing.T, s *redisstore.Store, first quota.Charge, calls ...func() error) (v valve, errs []error) {
	t.Helper()
	return togetherAfter(t, s, first, func() {}, calls...)
}

// togetherAfter is together, but calls before when all calls wait.
func togetherAfter(
	t *testing.T, s *redisstore.Store, first quota.Charge, before func(), calls ...func() error,
) (v valve, errs []error) {
	t.Helper()
	errs = make([]error, len(calls))
	v = newValve()
	v.off.Store(true)
	s.Client.AddHook(v)
	take(t, s, first) // so that Redis knows the script
	redisstore.Near(s, first.Key)
	v.off.Store(false)
	var all sync.WaitGroup
	for _, calls := range inFlight {
		away := v.trips.Load()
		for range calls {
			all.Go(func() {
				_, err := s.Peek(ctx, nil, first)
				assert.NoError(t, err)
			})
		}
		require.Eventually(t, func() bool { return v.trips.Load() > away }, hang, time.Millisecond)
	}
	for i, call := range calls {
		all.Go(func() { errs[i] = call() })
	}
	require.Eventually(t, func() bool { return redisstore.Queued(s, first.Key) == len(calls) }, hang, time.Millisecond)
	before()
	close(v.open)
	all.Wait()
	return v, errs
}

// inFlight has the number of calls in each batch that fills the connections: each batch costs one round
// trip and one script.
var inFlight = []int{1, 8}

// takes returns a call that takes c and counts in allowed whether it was admitted.
func takes(s *redisstore.Store, c quota.Charge, allowed *atomic.Int64) func() error {
	return func() error {
		ds, err := s.Take(ctx, nil, c)
		if err == nil && ds[0].Allowed {
			allowed.Add(1)
		}
		return err
	}
}

func TestCallsOfOneProcessShareARoundTrip(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Shared(t).Addr}})
	t.Cleanup(func() { ring.Close() })
	for name, test := range map[string]struct {
		client         redis.UniversalClient
		trips, scripts int // for calls of 10 Keys
	}{
		"client": {newClient(t, redistest.Shared(t)), 1, 1},
		"ring":   {ring, 1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := &redisstore.Store{Client: test.client, Timeout: patient}
			limit := compile(t, quota.PerDay(5))
			var allowed atomic.Int64
			var calls []func() error
			for i := range 100 {
				calls = append(calls, takes(s, quota.Charge{Key: fmt.Sprint(i % 10), Limit: limit}, &allowed))
			}
			v, errs := together(t, s, quota.Charge{Key: "first", Limit: limit}, calls...)
			for _, err := range errs {
				assert.NoError(t, err)
			}
			assert.EqualValues(t, 5*10, allowed.Load(), "exactly the limit")
			assert.EqualValues(t, len(inFlight)+test.trips, v.trips.Load())
			assert.EqualValues(t, len(inFlight)+test.scripts, v.scripts.Load())
		})
	}
}

func TestCallsForOneMasterShareARoundTrip(t *testing.T) {
	mostlyWaits(t)
	client := newCluster(t)
	s := &redisstore.Store{Client: client, Timeout: patient}
	limit := compile(t, quota.PerDay(5))
	first := quota.Charge{Key: "first", Limit: limit}
	take(t, s, first) // so that the masters are known
	master, err := client.MasterForKey(ctx, "heed:quota:2:first")
	require.NoError(t, err)
	var calls []func() error
	var allowed atomic.Int64
	keys := 0
	for i := 0; keys < 10; i++ {
		c := quota.Charge{Key: fmt.Sprint(i), Limit: limit}
		if m, err := client.MasterForKey(ctx, "heed:quota:2:"+c.Key); err == nil && m.Options().Addr == master.Options().Addr {
			keys++
			for range 10 {
				calls = append(calls, takes(s, c, &allowed))
			}
		}
	}
	v, errs := together(t, s, first, calls...)
	for _, err := range errs {
		assert.NoError(t, err)
	}
	assert.EqualValues(t, 5*10, allowed.Load())
	assert.EqualValues(t, len(inFlight)+1, v.trips.Load())
	assert.EqualValues(t, len(inFlight)+10, v.scripts.Load(), "one script for each Key")
}

func TestARefusedCallDoesNotFailItsBatch(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	limit := compile(t, quota.PerDay(5))
	require.NoError(t, s.Client.HSet(ctx, "heed:quota:2:wrong", "a", "1").Err())
	first := quota.Charge{Key: "first", Limit: limit}
	var allowed atomic.Int64
	var calls []func() error
	for i := range 20 {
		calls = append(calls, takes(s, quota.Charge{Key: []string{"right", "wrong"}[i%2], Limit: limit}, &allowed))
	}
	v, errs := together(t, s, first, calls...)
	for i, err := range errs {
		if i%2 == 0 {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "WRONGTYPE")
		}
	}
	assert.EqualValues(t, 5, allowed.Load(), "each call was made once")
	assert.EqualValues(t, 10, s.Degraded())
	assert.EqualValues(t, len(inFlight)+2, v.trips.Load(), "once in a batch, and then each call by itself")
}

func TestAKeyWithoutReadPermissionFailsOneCallOnly(t *testing.T) { onlyMine(t, "~heed:quota:2:mine*") }

func TestAKeyWithoutWritePermissionFailsOneCallOnly(t *testing.T) {
	onlyMine(t, "%R~*", "~heed:quota:2:mine*")
}

// onlyMine runs two calls in one batch, as a user whose rules forbid the key of one of them.
func onlyMine(t *testing.T, rules ...any) {
	admin := newClient(t, redistest.Shared(t))
	user := append([]any{"ACL", "SETUSER", "limited", "on", "nopass", "+@all"}, rules...)
	require.NoError(t, admin.Do(ctx, user...).Err())
	limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
	defer limited.Close()
	s := &redisstore.Store{Client: limited, Timeout: patient}
	limit := compile(t, quota.PerDay(5))
	var allowed atomic.Int64
	_, errs := together(t, s, quota.Charge{Key: "mine", Limit: limit},
		takes(s, quota.Charge{Key: "theirs", Limit: limit}, &allowed),
		takes(s, quota.Charge{Key: "mine too", Limit: limit}, &allowed))
	assert.ErrorContains(t, errs[0], "NOPERM")
	assert.NoError(t, errs[1])
	assert.EqualValues(t, 1, allowed.Load())
}

func TestACallCanceledInTheQueueIsNotCharged(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1000))}
	gone, leave := context.WithCancel(ctx)
	var stay, leavers []func() error
	var allowed atomic.Int64
	var left sync.WaitGroup
	for range 30 {
		stay = append(stay, takes(s, c, &allowed))
		left.Add(1)
		leavers = append(leavers, func() error {
			defer left.Done()
			_, err := s.Take(gone, nil, c)
			return err
		})
	}
	_, errs := togetherAfter(t, s, c, func() { leave(); left.Wait() }, append(stay, leavers...)...)
	for _, err := range errs[30:] {
		assert.Equal(t, context.Canceled, err)
	}
	assert.EqualValues(t, 30, allowed.Load())
	ds, err := s.Peek(ctx, nil, c)
	require.NoError(t, err)
	assert.EqualValues(t, 1000-1-30, ds[0].Remaining)
	assert.EqualValues(t, 30, s.Degraded())
}

// Calls go inline or in batches, alone or concurrently. Each is counted once.
func TestConcurrentCallsAreCountedOnce(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	for name, client := range map[string]redis.UniversalClient{
		"client":  newClient(t, server),
		"cluster": newCluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			s := &redisstore.Store{Client: client, Prefix: name, Timeout: patient}
			const callers, quotaOfAll = 64, 10_000 // does not refill during the test
			limit := compile(t, quota.Policy{Quota: 1, Window: 24 * time.Hour, Burst: quotaOfAll})
			calls := stated(100, 30)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					var dst []quota.Decision
					for j := range calls {
						var err error
						dst, err = s.Take(ctx, dst[:0], quota.Charge{Key: fmt.Sprint(j % 3), N: int64(1 + i%2), Limit: limit})
						if assert.NoError(t, err) {
							assert.True(t, dst[0].Allowed)
						}
					}
				})
			}
			all.Wait()
			var taken int64
			for key := range 3 {
				ds, err := s.Peek(ctx, nil, quota.Charge{Key: fmt.Sprint(key), Limit: limit})
				require.NoError(t, err)
				taken += quotaOfAll - ds[0].Remaining
			}
			assert.EqualValues(t, callers*calls*3/2, taken)
		})
	}
}

func TestAnInlineCallEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := silentRedis(t, redis.Options{ContextTimeoutEnabled: true})
		s := &redisstore.Store{Client: client}
		c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
		start := time.Now()
		_, err := s.Take(ctx, nil, c)
		assert.Error(t, err)
		assert.False(t, errors.As(err, new(redis.Error)))
		assert.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
		_, err = s.Take(ctx, nil, c)
		assert.ErrorContains(t, err, "is unavailable")
		assert.EqualValues(t, 2, s.Degraded())
	})
}

func TestDegradedCountsFailedDecisions(t *testing.T) {
	fake := redistest.NewFake(t, redistest.Loading)
	client := redis.NewClient(&redis.Options{Addr: fake.Addr})
	defer client.Close()
	s := &redisstore.Store{Client: client, Timeout: patient}
	lease := &redisstore.Lease{Store: s}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	for i, call := range []func() error{
		func() error { _, err := s.Take(ctx, nil, c); return err },
		func() error { _, err := s.Peek(ctx, nil, c); return err },
		func() error { _, _, _, err := s.Reserve(ctx, time.Hour, c); return err },
		func() error { _, _, err := s.Acquire(ctx, "key", 1, 1); return err },
		func() error { _, err := lease.Take(ctx, nil, c); return err },
		func() error { _, _, _, err := lease.Reserve(ctx, time.Hour, c); return err },
	} {
		require.Error(t, call())
		assert.EqualValues(t, i+1, s.Degraded())
	}
	_, err := s.Take(ctx, nil, quota.Charge{})
	require.ErrorAs(t, err, new(*quota.ChargeError))
	require.Error(t, s.Settle(ctx, quota.Charge{Key: "key", N: 1, Limit: c.Limit}))
	_, _, err = s.Acquire(ctx, "key", -1, 1)
	require.ErrorAs(t, err, new(*quota.AcquireError))
	assert.EqualValues(t, 6, s.Degraded(), "none of these is a decision")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Take(gone, nil, c)
	require.Error(t, err)
	_, err = (&redisstore.Store{}).Take(ctx, nil, c)
	require.Error(t, err)
	assert.EqualValues(t, 7, s.Degraded())
}
