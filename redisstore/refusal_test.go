package redisstore_test

import (
	"testing"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStoreWritesNothingWithoutAllPermissions(t *testing.T) {
	for _, rules := range [][]string{
		{"~*", "-del", "-set"},
		{"%R~*", "%W~heed:quota:2:a"}, // neither the other key nor budgets
	} {
		t.Run(rules[len(rules)-1], func(t *testing.T) {
			admin := newClient(t, redistest.Shared(t))
			args := []any{"ACL", "SETUSER", "limited", "on", "nopass", "+@all"}
			for _, rule := range rules {
				args = append(args, rule)
			}
			require.NoError(t, admin.Do(ctx, args...).Err())
			limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
			defer limited.Close()

			s := &redisstore.Store{Client: limited, Timeout: patient}
			limit := compile(t, quota.PerDay(10))
			a, b := quota.Charge{Key: "a", N: 1, Limit: limit}, quota.Charge{Key: "b", N: 1, Limit: limit}
			_, err := s.Take(ctx, nil, a, b)
			assert.ErrorAs(t, err, new(redis.Error))
			assert.ErrorAs(t, s.Settle(ctx, a, b), new(redis.Error))

			lost := make(chan error, 10)
			budget := slowly(limited)
			budget.MinPerSecond, budget.Timeout, budget.Degraded = -1, patient, func(err error) { lost <- err }
			assert.False(t, budget.Withdraw(ctx, host))
			assert.ErrorAs(t, <-lost, new(redis.Error))

			assert.Empty(t, admin.Keys(ctx, "*").Val())
		})
	}
}

func TestABudgetWritesNothingWithoutAllPermissions(t *testing.T) {
	admin := newClient(t, redistest.Shared(t))
	require.True(t, failing(t, slowly(admin)).Withdraw(ctx, host))
	before := admin.HGetAll(ctx, "heed:budget:orders-api").Val()
	require.Len(t, before, 3)
	for _, rule := range []string{"-pexpire", "-hset", "-del"} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all", rule).Err())
		limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
		b := slowly(limited)
		b.MinPerSecond, b.Timeout = -1, patient
		assert.False(t, b.Withdraw(ctx, host), rule)
		assert.Equal(t, before, admin.HGetAll(ctx, "heed:budget:orders-api").Val(), rule)
		assert.NoError(t, limited.Close())
	}
}

func TestAStoreWritesNothingWhenRedisIsFull(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	limit := compile(t, quota.PerDay(10))
	take(t, s, quota.Charge{Key: "old", Limit: limit})
	require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory", "1").Err())
	for _, key := range []string{"old", "new"} {
		_, err := s.Take(ctx, nil, quota.Charge{Key: key, Limit: limit})
		assert.ErrorContains(t, err, "OOM", key)
		assert.ErrorAs(t, err, new(redis.Error), key)
	}
	require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory", "0").Err())
	assert.EqualValues(t, 8, take(t, s, quota.Charge{Key: "old", Limit: limit})[0].Remaining)
	assert.EqualValues(t, 9, take(t, s, quota.Charge{Key: "new", Limit: limit})[0].Remaining)
}
