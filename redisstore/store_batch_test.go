package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// A valve counts scripts and round trips. It holds them back until it is opened, unless it is off.
type valve struct {
	off            atomic.Bool
	open           chan struct{}
	scripts, trips atomic.Int64
}

func (v *valve) pass(cmds []redis.Cmder, next func() error) error {
	if n := scriptsIn(cmds); n > 0 && !v.off.Load() {
		v.scripts.Add(n)
		v.trips.Add(1)
		<-v.open
	}
	return next()
}

// together first fills the connections to the server of first with batches, then starts calls and releases
// all. It returns the results of calls.
func together(t *testing.T, s *redisstore.Store, first quota.Charge, calls ...func() error) (v *valve, errs []error) {
	t.Helper()
	return togetherAfter(t, s, first, func() {}, calls...)
}

// togetherAfter is together, but calls before when all calls wait.
func togetherAfter(
	t *testing.T, s *redisstore.Store, first quota.Charge, before func(), calls ...func() error,
) (v *valve, errs []error) {
	t.Helper()
	errs = make([]error, len(calls))
	v = &valve{open: make(chan struct{})}
	v.off.Store(true)
	s.Client.AddHook(hook(v.pass))
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

func TestCallsForOneServerShareARoundTrip(t *testing.T) {
	mostlyWaits(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Shared(t).Addr}})
	defer ring.Close()
	cluster := newCluster(t)
	nearFirst := func(key string) bool {
		first, _ := cluster.MasterForKey(ctx, "heed:quota:2:first")
		m, err := cluster.MasterForKey(ctx, "heed:quota:2:"+key)
		return err == nil && m.Options().Addr == first.Options().Addr
	}
	for name, test := range map[string]struct {
		client  redis.UniversalClient
		chooses func(key string) bool
		scripts int // for calls of 10 Keys
	}{
		"client":  {newClient(t, redistest.Shared(t)), nil, 1},
		"ring":    {ring, nil, 10},
		"cluster": {cluster, nearFirst, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := &redisstore.Store{Client: test.client, Timeout: patient}
			limit := compile(t, quota.PerDay(5))
			first := quota.Charge{Key: "first", Limit: limit}
			var allowed atomic.Int64
			var calls []func() error
			for i := 0; len(calls) < 100; i++ {
				if c := (quota.Charge{Key: fmt.Sprint(i), Limit: limit}); test.chooses == nil || test.chooses(c.Key) {
					calls = append(calls, slices.Repeat([]func() error{takes(s, c, &allowed)}, 10)...)
				}
			}
			v, errs := together(t, s, first, calls...)
			assert.NoError(t, errors.Join(errs...))
			assert.EqualValues(t, 5*10, allowed.Load(), "exactly the limit")
			assert.EqualValues(t, len(inFlight)+1, v.trips.Load())
			assert.EqualValues(t, len(inFlight)+test.scripts, v.scripts.Load())
		})
	}
}

func TestARefusedCallDoesNotFailItsBatch(t *testing.T) {
	for name, test := range map[string]struct{ rules, says string }{
		"not a string": {"~*", "WRONGTYPE"},
		"not readable": {"~heed:quota:2:right ~heed:quota:2:first", "NOPERM"},
		"read-only":    {"%R~* ~heed:quota:2:right ~heed:quota:2:first", "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := newClient(t, redistest.Shared(t))
			user := []any{"ACL", "SETUSER", "limited", "on", "nopass", "+@all"}
			for _, rule := range strings.Fields(test.rules) {
				user = append(user, rule)
			}
			require.NoError(t, admin.Do(ctx, user...).Err())
			require.NoError(t, admin.HSet(ctx, "heed:quota:2:wrong", "a", "1").Err())
			client := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
			defer client.Close()
			s := &redisstore.Store{Client: client, Timeout: patient}
			limit := compile(t, quota.PerDay(5))
			var allowed atomic.Int64
			var calls []func() error
			for i := range 20 {
				calls = append(calls, takes(s, quota.Charge{Key: []string{"right", "wrong"}[i%2], Limit: limit}, &allowed))
			}
			v, errs := together(t, s, quota.Charge{Key: "first", Limit: limit}, calls...)
			for i, err := range errs {
				if i%2 == 0 {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, test.says)
				}
			}
			assert.EqualValues(t, 5, allowed.Load(), "each call was made once")
			assert.EqualValues(t, 10, s.Degraded())
			assert.EqualValues(t, len(inFlight)+2, v.trips.Load(), "once in a batch, and then each call by itself")
		})
	}
}

// On a Cluster or Ring each Key of a batch has a script of its own, in one pipeline.
func TestARefusedScriptDoesNotFailItsPipeline(t *testing.T) {
	cluster := newCluster(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Shared(t).Addr}})
	defer ring.Close()
	home, err := cluster.MasterForKey(ctx, "heed:quota:2:wrong")
	require.NoError(t, err)
	var keys []string // on the same master
	for i := 0; len(keys) < 6; i++ {
		if m, err := cluster.MasterForKey(ctx, fmt.Sprint("heed:quota:2:", i)); err == nil && m == home {
			keys = append(keys, fmt.Sprint(i))
		}
	}
	limit := compile(t, quota.PerDay(5))
	for name, client := range map[string]redis.UniversalClient{"cluster": cluster, "ring": ring} {
		s := &redisstore.Store{Client: client, Timeout: patient}
		require.NoError(t, client.HSet(ctx, "heed:quota:2:wrong", "a", "1").Err())
		var allowed atomic.Int64
		calls := []func() error{takes(s, quota.Charge{Key: "wrong", Limit: limit}, &allowed)}
		for _, key := range keys[1:] {
			calls = append(calls, takes(s, quota.Charge{Key: key, Limit: limit}, &allowed))
		}
		_, errs := together(t, s, quota.Charge{Key: keys[0], Limit: limit}, calls...)
		assert.ErrorContains(t, errs[0], "WRONGTYPE", name)
		for i, key := range keys[1:] {
			assert.NoError(t, errs[1+i], name)
			ds, err := s.Peek(ctx, nil, quota.Charge{Key: key, Limit: limit})
			require.NoError(t, err)
			assert.EqualValues(t, 4, ds[0].Remaining, "%s: charged once", name)
		}
	}
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
