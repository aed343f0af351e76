package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func newCluster(t *testing.T) *redis.ClusterClient {
	return newClusterClient(t, redistest.SharedCluster(t))
}

func newClusterClient(t *testing.T, nodes []*redistest.Server) *redis.ClusterClient {
	var addrs []string
	for _, node := range nodes {
		addrs = append(addrs, node.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() })
	return client
}

func newRing(t *testing.T) *redis.Ring {
	addrs := make(map[string]string)
	for i := range 3 {
		addrs[fmt.Sprint("shard", i)] = redistest.Shared(t).Addr
	}
	client := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestChargesOfSeveralServersAreTakenTogetherOrGivenBack(t *testing.T) {
	mostlyWaits(t)
	for name, client := range map[string]redis.UniversalClient{"cluster": newCluster(t), "ring": newRing(t)} {
		t.Run(name, func(t *testing.T) {
			s := &redisstore.Store{Client: client, Timeout: patient}
			var charges []quota.Charge
			for i := range int64(12) { // keys on several masters
				charges = append(charges, quota.Charge{Key: fmt.Sprint("key ", i), N: 2, Limit: compile(t, quota.PerDay(4+i))})
			}
			dry := quota.Charge{Key: "key 3", Limit: compile(t, quota.PerDay(1)), DryRun: true}
			charges = append(charges, dry)

			for round := range int64(2) {
				for i, d := range take(t, s, charges...)[:12] {
					assert.True(t, d.Allowed)
					assert.EqualValues(t, 4+int64(i)-2*(round+1), d.Remaining)
				}
			}
			for range 3 {
				ds := take(t, s, charges...)
				for i, d := range ds[:12] {
					assert.EqualValues(t, i, d.Remaining)
					assert.Equal(t, i >= 2, d.Allowed)
					assert.Equal(t, i < 2, d.RetryAfter > 0)
				}
				assert.False(t, ds[12].Allowed)
			}
			ds, err := s.Peek(ctx, nil, charges...)
			require.NoError(t, err)
			assert.EqualValues(t, 11, ds[11].Remaining)

			wait, _, ok, err := s.Reserve(ctx, 13*time.Hour, charges[:12]...)
			require.NoError(t, err)
			assert.True(t, ok)
			assert.InDelta(t, 12*time.Hour, wait, float64(time.Minute))
			wait, _, ok, err = s.Reserve(ctx, 13*time.Hour, charges[:12]...)
			require.NoError(t, err)
			assert.False(t, ok)
			assert.InDelta(t, 24*time.Hour, wait, float64(time.Minute))
			refunds := slices.Clone(charges)
			for i := range refunds {
				refunds[i].N = -2
			}
			require.NoError(t, s.Settle(ctx, refunds...))
			ds, err = s.Peek(ctx, nil, charges...)
			require.NoError(t, err)
			assert.EqualValues(t, 11, ds[11].Remaining)
		})
	}
}

func TestOnlyTheStoppedServerIsAvoided(t *testing.T) {
	mostlyWaits(t)
	nodes := redistest.SharedCluster(t)
	cluster := newClusterClient(t, nodes)
	shards := []*redistest.Server{redistest.Shared(t), redistest.Shared(t), redistest.Shared(t)}
	ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: time.Hour,
		Addrs: map[string]string{"a": shards[0].Addr, "b": shards[1].Addr, "c": shards[2].Addr}})
	defer ring.Close()
	type kind struct {
		client  redis.UniversalClient
		servers []*redistest.Server
	}
	atOnce(t, map[string]kind{"cluster": {cluster, nodes}, "ring": {ring, shards}}, func(t *testing.T, test kind) {
		limit := compile(t, quota.PerDay(1_000_000))
		patiently := &redisstore.Store{Client: test.client, Timeout: patient}
		stopped := test.servers[0]
		direct := newClient(t, stopped)
		var lost, live []quota.Charge
		for i := range 30 {
			c := quota.Charge{Key: fmt.Sprint("key ", i), Limit: limit}
			take(t, patiently, c)
			if len(direct.Keys(ctx, "heed:quota:2:"+c.Key).Val()) == 1 { // EXISTS would be redirected
				lost = append(lost, c)
			} else {
				live = append(live, c)
			}
		}
		require.NotEmpty(t, lost)
		require.NotEmpty(t, live)

		stopped.Stop()
		defer stopped.Cont()
		s := &redisstore.Store{Client: test.client, Timeout: 3 * time.Second} // long enough for live servers
		_, err := s.Take(ctx, nil, lost[0])
		require.Error(t, err)
		for range 10 {
			for _, c := range live {
				_, err := s.Take(ctx, nil, c)
				require.NoError(t, err)
			}
			for _, c := range lost {
				_, err := s.Take(ctx, nil, c)
				require.ErrorContains(t, err, "is unavailable") // so the call did not wait
			}
		}

		stopped.Cont()
		isFound(t, s, lost[0])
	})
}

func TestAnUnreachableClusterFailsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := redistest.NewMemoryFake(t, redistest.Silence)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: fake.Dial})
		defer func() {
			client.Close()
			time.Sleep(time.Hour) // for dials of the client, which end before the bubble may
		}()
		s := &redisstore.Store{Client: client}
		c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
		start := time.Now()
		for range 20 {
			_, err := s.Take(ctx, nil, c)
			require.Error(t, err)
		}
		// The first decision waits for 50 ms. A second may start before the breaker opens.
		assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
	})
}

// If one Key fails, the charges of others are given back. A redis.Error would mean that nothing was charged.
func TestChargesBeforeAFailureAreGivenBack(t *testing.T) {
	refused, silent := redisError("LOADING Redis is loading"), context.DeadlineExceeded
	one := quota.Charge{Key: "one", Limit: compile(t, quota.PerDay(1))}
	two := quota.Charge{Key: "two", Limit: compile(t, quota.PerDay(2))}
	for name, test := range map[string]struct {
		turns []error
		left  int64 // of one
		plain bool
	}{
		"nothing was made":              {[]error{refused}, 1, true},
		"given back":                    {[]error{nil, refused, nil}, 1, true},
		"given back after silence":      {[]error{nil, silent, nil, nil}, 1, false},
		"silence when giving back":      {[]error{nil, refused, silent}, 0, false},
		"a refusal when giving back":    {[]error{nil, refused, refused}, 0, false},
		"silence, and a refusal to end": {[]error{nil, silent, refused, nil}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Shared(t)
			direct := newStore(t, server) // it makes Redis know the script, so no call fails with NOSCRIPT
			take(t, direct, quota.Charge{Key: "other", Limit: one.Limit})
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr}})
			defer ring.Close()
			turns := make(chan error, 10)
			for _, turn := range test.turns {
				turns <- turn
			}
			close(turns)
			ring.AddHook(hook(func(cmds []redis.Cmder, next func() error) error {
				if scriptsIn(cmds) == 0 {
					return next()
				}
				if err := <-turns; err != nil {
					cmds[0].SetErr(err)
					return err
				}
				return next()
			}))
			_, err := (&redisstore.Store{Client: ring, Timeout: patient}).Take(ctx, nil, one, two)
			require.Error(t, err)
			assert.Equal(t, test.plain, errors.As(err, new(redis.Error)), "%v", err)
			for _, turn := range test.turns {
				if turn != nil {
					assert.ErrorIs(t, err, turn)
				}
			}
			ds, err := direct.Peek(ctx, nil, one)
			require.NoError(t, err)
			assert.Equal(t, test.left, ds[0].Remaining)
		})
	}
}

func TestAPartialSettlementIsNoPlainRefusal(t *testing.T) {
	s := &redisstore.Store{Client: newRing(t), Timeout: patient}
	require.NoError(t, s.Client.HSet(ctx, "heed:quota:2:wrong", "a", "1").Err())
	limit := compile(t, quota.PerDay(10))
	wrong, right := quota.Charge{Key: "wrong", N: 1, Limit: limit}, quota.Charge{Key: "right", N: 1, Limit: limit}
	var refusal redis.Error
	assert.True(t, errors.As(s.Settle(ctx, wrong), &refusal))
	err := s.Settle(ctx, right, wrong)
	assert.ErrorContains(t, err, "WRONGTYPE")
	assert.False(t, errors.As(err, &refusal))
	assert.EqualValues(t, 8, take(t, s, quota.Charge{Key: "right", Limit: limit})[0].Remaining)
}

// A reservation takes from the next window what does not fit into this one, and that cannot be given back.
func TestADeniedReservationOfSeveralServersChangesNothing(t *testing.T) {
	server := redistest.Shared(t)
	newClient(t, server)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr, "b": server.Addr}})
	defer ring.Close()
	s := &redisstore.Store{Client: ring, Timeout: patient}
	all := compile(t, quota.Policy{Name: "all", Quota: 1000, Window: time.Hour})
	for _, algorithm := range []quota.Algorithm{quota.TokenBucket, quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog} {
		a := quota.Charge{Key: fmt.Sprint("a", algorithm), N: 60}
		a.Limit = compile(t, quota.Policy{Quota: 100, Window: 20 * time.Hour, Algorithm: algorithm})
		require.True(t, take(t, s, a)[0].Allowed)
		a.N = 50
		_, _, ok, err := s.Reserve(ctx, 24*time.Hour, a, quota.Charge{Key: "b", Limit: all, N: 2000})
		require.NoError(t, err)
		assert.False(t, ok)
		a.N = 1
		assert.True(t, take(t, s, a)[0].Allowed, "%v: 60 of 100 are used", algorithm)
		a.N = 50
		wait, _, ok, err := s.Reserve(ctx, 24*time.Hour, a, quota.Charge{Key: "b", Limit: all})
		require.NoError(t, err)
		assert.True(t, ok && wait > 0, "%v: what fits is reserved", algorithm)
	}
}
