//go:build unix

package benchmarks_test

import (
	"context"
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// A sharedCounter is a library that counts in Redis.
type sharedCounter struct {
	name  string
	alone bool // it does not support a Cluster
	races bool // concurrent calls may get an error

	open openShared
	key  string // its key in Redis has 20 characters
}

// openShared returns a limiter with so many rules. It admits each key limit times at once, and
// hardly more for the rest of the day.
type openShared func(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared

type decideShared func(ctx context.Context, key string) (bool, error)

var sharedCounters = []sharedCounter{
	{name: "heed", key: "192.0.2.1", open: openStore},
	{name: "redis_rate", key: "192.0.2.1234567", open: openRedisRate},
	{name: "throttled", key: "192.0.2.123456789012", open: openThrottledRedis, alone: true, races: true},
	{name: "ulule", key: "192.0.2.1234", open: openUluleRedis},
}

// plainForms are not libraries, but the token buckets that one would write for Redis: with a
// batcher, with a script for each decision, and with the pipelines of go-redis.
var plainForms = []sharedCounter{
	{name: "simple", key: "192.0.2.12345", open: openSimpleStore, alone: true},
	{name: "plain-script", key: "192.0.2.12345", open: openPlainScript, alone: true},
	{name: "auto-pipeline", key: "192.0.2.12345", open: openAutoPipeline, alone: true},
}

func openStore(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	return taking(tb, &redisstore.Store{Client: client, Timeout: patience}, rules, limit)
}

// inMemory counts in this process alone.
var inMemory = sharedCounter{name: "bare", open: func(
	tb testing.TB, _ redis.UniversalClient, rules, limit int,
) decideShared {
	return taking(tb, new(quota.Memory), rules, limit)
}}

// openLease is a Lease of heed that takes up to most units ahead.
func openLease(most int64) openShared {
	return func(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
		lease := &redisstore.Lease{Store: &redisstore.Store{Client: client, Timeout: patience}, Max: most}
		tb.Cleanup(func() { require.NoError(tb, lease.Close(background)) })
		return taking(tb, lease, rules, limit)
	}
}

func taking(tb testing.TB, store quota.Store, rules, limit int) decideShared {
	limits := make([]*quota.Limit, rules)
	for i := range limits {
		limits[i] = compile(tb, quota.Policy{Name: ruleNames[i], Quota: int64(limit), Window: day})
	}
	if rules == 1 { // the others allocate nothing for rules
		return func(ctx context.Context, key string) (bool, error) {
			var decisions [1]quota.Decision
			ds, err := store.Take(ctx, decisions[:0], quota.Charge{Key: key, Limit: limits[0]})
			return err == nil && ds[0].Allowed, err
		}
	}
	return func(ctx context.Context, key string) (bool, error) {
		var charges [4]quota.Charge
		var decisions [4]quota.Decision
		for i, l := range limits {
			charges[i] = quota.Charge{Key: key, Limit: l}
		}
		ds, err := store.Take(ctx, decisions[:0], charges[:rules]...)
		for i := range ds {
			if !ds[i].Allowed {
				return false, err
			}
		}
		return err == nil, err
	}
}

var ruleNames = [...]string{"minute", "second", "hour", "day"}

// byRule counts each rule by a call of its own, under a key of its own, until one denies.
func byRule(rules int, one decideShared) decideShared {
	if rules == 1 {
		return one
	}
	return func(ctx context.Context, key string) (bool, error) {
		for i := range rules {
			if ok, err := one(ctx, key[:len(key)-1]+ruleNames[i][:1]); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

func openRedisRate(_ testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	l := redis_rate.NewLimiter(client)
	quota := redis_rate.Limit{Rate: limit, Burst: limit, Period: day}
	return byRule(rules, func(ctx context.Context, key string) (bool, error) {
		answer, err := l.Allow(ctx, key, quota)
		return err == nil && answer.Allowed > 0, err
	})
}

func openThrottledRedis(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	store, err := goredisstore.NewCtx(client, "")
	require.NoError(tb, err)
	l, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(limit))
	require.NoError(tb, err)
	return byRule(rules, func(ctx context.Context, key string) (bool, error) {
		denied, _, err := l.RateLimitCtx(ctx, key, 1)
		return err == nil && !denied, err
	})
}

func openUluleRedis(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	store, err := ululeredis.NewStore(client)
	require.NoError(tb, err)
	l := ulule.New(store, ulule.Rate{Period: day, Limit: int64(limit)})
	return byRule(rules, func(ctx context.Context, key string) (bool, error) {
		answer, err := l.Get(ctx, key)
		return err == nil && !answer.Reached, err
	})
}
