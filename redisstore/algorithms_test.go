package redisstore_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// One process has the real time, and another, in a synctest bubble, the start of the year 2000.

func TestProcessesWithDifferentClocksGetTheSameDecisions(t *testing.T) {
	server := redistest.Shared(t)
	limits := map[string]*quota.Limit{}
	for _, algorithm := range []quota.Algorithm{quota.TokenBucket, quota.SlidingWindow, quota.SlidingLog} {
		limits[algorithm.String()] = compile(t, quota.Policy{Quota: 10, Window: 24 * time.Hour, Algorithm: algorithm})
	}
	takeFrom := func(t *testing.T, client *redis.Client, want int64, allowed bool) {
		s := &redisstore.Store{Client: client, Timeout: patient}
		for name, limit := range limits {
			d := take(t, s, quota.Charge{Key: name, N: 3, Limit: limit})[0]
			assert.Equal(t, allowed, d.Allowed, name)
			assert.Equal(t, want, d.Remaining, name)
		}
	}
	now := newClient(t, server)
	then := func(want int64, allowed bool) {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, 2000, time.Now().UTC().Year())
			client := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer client.Close()
			takeFrom(t, client, want, allowed)
		})
	}
	takeFrom(t, now, 7, true)
	then(4, true)
	takeFrom(t, now, 1, true)
	then(1, false)
	takeFrom(t, now, 1, false)
}

func TestAStoreInASynctestBubbleLeavesNothingBehind(t *testing.T) {
	server := redistest.Shared(t)
	limit := compile(t, quota.PerDay(1_000_000))
	callMany := func(t *testing.T, client *redis.Client) {
		s := &redisstore.Store{Client: client, Timeout: patient}
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				_, err := s.Take(ctx, nil, quota.Charge{Key: fmt.Sprint(i), Limit: limit})
				assert.NoError(t, err)
			})
		}
		all.Wait()
	}
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer client.Close()
			callMany(t, client)
		})
		callMany(t, newClient(t, server))
	}
}

func TestASlidingWindowIsKeptUntilTheNextWindowEnds(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	sliding := quota.Policy{Quota: 50, Window: time.Hour, Algorithm: quota.SlidingWindow}
	c := quota.Charge{Key: "key", Limit: compile(t, sliding)}
	d := take(t, s, c)[0]
	end := d.At.Truncate(time.Hour).Add(2 * time.Hour)
	assert.Equal(t, end, d.At.Add(d.ResetAfter))
	ttl := expiry(t, s.Client, "heed:quota:2:key").Sub(d.At)
	assert.Greater(t, ttl, d.ResetAfter)
	assert.LessOrEqual(t, ttl, (d.ResetAfter+3*time.Second)*17/16)
}
