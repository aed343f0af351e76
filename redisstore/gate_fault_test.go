package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gateOf returns a Store whose Redis gives this reply to every Acquire.
func gateOf(t *testing.T, reply string) *redisstore.Store {
	fake := redistest.NewFake(t, ":1\r\n")
	client := redis.NewClient(&redis.Options{Addr: fake.Addr})
	t.Cleanup(func() { client.Close() })
	s := &redisstore.Store{Client: client, Timeout: patient}
	require.NoError(t, s.Ping(ctx))
	fake.Say(reply)
	return s
}

func TestAFailedAcquireHoldsNothing(t *testing.T) {
	closed := redis.NewClient(&redis.Options{Addr: redistest.Nowhere(t)})
	closed.Close()
	for name, s := range map[string]*redisstore.Store{
		"no client":         {},
		"a closed client":   {Client: closed},
		"a hang-up":         gateOf(t, redistest.HangUp),
		"nil":               gateOf(t, "$-1\r\n"),
		"a status":          gateOf(t, "+OK\r\n"),
		"an empty list":     gateOf(t, "*0\r\n"),
		"a short list":      gateOf(t, "*3\r\n:1\r\n:0\r\n:0\r\n"),
		"a long list":       gateOf(t, "*5\r\n:1\r\n:0\r\n:0\r\n:1\r\n:1\r\n"),
		"strings":           gateOf(t, "*4\r\n$1\r\n1\r\n:0\r\n:0\r\n:1\r\n"),
		"negative numbers":  gateOf(t, "*4\r\n:1\r\n:-1\r\n:0\r\n:1\r\n"),
		"numbers too large": gateOf(t, "*4\r\n:1\r\n:9007199254740992\r\n:0\r\n:1\r\n"),
	} {
		hold, d, err := s.Acquire(ctx, "key", 1, 1)
		assert.Error(t, err, name)
		assert.Nil(t, hold, name)
		assert.Zero(t, d, name)
		assert.EqualValues(t, 1, s.Degraded(), name)
	}
	s := gateOf(t, "*4\r\n:5\r\n:1\r\n:0\r\n:1\r\n")
	hold, d, err := s.Acquire(ctx, "key", 3, 1)
	require.NoError(t, err)
	assert.Equal(t, quota.Decision{Allowed: true, Limit: 3, Remaining: 2, At: time.UnixMicro(5)}, d)
	hold.Release()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err = s.Acquire(ended, "key", 3, 1)
	assert.Equal(t, context.Canceled, err)
	assert.EqualValues(t, 1, s.Degraded())
}

func TestAGateWritesNothingWithoutAllPermissions(t *testing.T) {
	admin := newClient(t, redistest.Start(t))
	hold := mustAcquire(t, newGate(admin), "key", 2, 1)
	require.NoError(t, admin.ZAdd(ctx, gateKey, redis.Z{Score: 1, Member: "1:expired"}).Err()) // to be removed first
	before := admin.ZRangeWithScores(ctx, gateKey, 0, -1).Val()
	for _, rule := range []string{"-zadd", "-zrem", "-pexpire", "-del"} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all", rule).Err())
		limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
		for _, key := range []string{"key", "new"} {
			_, _, err := newGate(limited).Acquire(ctx, key, 2, 1)
			assert.ErrorAs(t, err, new(redis.Error), rule)
		}
		assert.Equal(t, before, admin.ZRangeWithScores(ctx, gateKey, 0, -1).Val(), rule)
		assert.Zero(t, admin.Exists(ctx, "gate:\x01new").Val(), rule)
		assert.NoError(t, limited.Close())
	}
	hold.Release()
}

func TestWithoutMemoryHoldsAreRenewedAndReleasedOnly(t *testing.T) {
	t.Parallel() // it waits for a renewal
	client := newClient(t, redistest.Start(t))
	s := newGate(client)
	s.HoldTTL = patient
	hold, other := mustAcquire(t, s, "key", 20, 1), mustAcquire(t, s, "key", 20, 1)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	for _, key := range []string{"key", "new"} {
		_, _, err := s.Acquire(ctx, key, 20, 1)
		assert.ErrorContains(t, err, "OOM", key)
	}
	_, d, err := s.Acquire(ctx, "key", 2, 1)
	assert.NoError(t, err, "a denial writes nothing")
	assert.False(t, d.Allowed)
	before := client.ZRangeWithScores(ctx, gateKey, 0, -1).Val()
	require.Len(t, before, 3, "the entries, and how many places they take")
	for _, entry := range before[1:] {
		renewed := func() bool { return client.ZScore(ctx, gateKey, entry.Member.(string)).Val() > entry.Score }
		require.Eventually(t, renewed, hang, 10*ms)
	}
	assert.False(t, isLost(hold) || isLost(other))
	other.Release()
	assert.EqualValues(t, 2, client.ZCard(ctx, gateKey).Val())
	hold.Release()
	assert.Zero(t, client.Exists(ctx, gateKey).Val())
}
