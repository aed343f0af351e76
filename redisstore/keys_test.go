package redisstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listed returns the Keys of s, each as often as it is yielded.
func listed(t *testing.T, s *redisstore.Store) map[string][]redisstore.KeyState {
	t.Helper()
	all := make(map[string][]redisstore.KeyState)
	for k, err := range s.Keys(ctx) {
		require.NoError(t, err)
		all[k.Key] = append(all[k.Key], k)
	}
	return all
}

func TestAllKeysOfAStoreAreListed(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{
		"server": newClient(t, redistest.Shared(t)), "cluster": newCluster(t), "ring": newRing(t),
	} {
		s := &redisstore.Store{Client: client, Timeout: patient, Prefix: `[a-z]*?\:`}
		other := &redisstore.Store{Client: client, Timeout: patient, Prefix: `b:`}
		assert.Empty(t, listed(t, s), name)

		hour, day := compile(t, quota.PerHour(10)), compile(t, quota.PerDay(10))
		const n = 2500
		var all sync.WaitGroup
		for worker := range 10 {
			all.Go(func() {
				for i := worker; i < n; i += 10 {
					_, err := s.Take(ctx, nil, quota.Charge{Key: fmt.Sprint("key:", i), Limit: hour, N: 3, ID: "request"})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		take(t, s, quota.Charge{Key: "key:7", Limit: day, N: 2}, quota.Charge{Key: "key:7", Limit: hour, DryRun: true})
		take(t, other, quota.Charge{Key: "key:7", Limit: day})
		mustAcquire(t, s, "in flight", 3, 1)

		got := listed(t, s)
		require.Len(t, got, n, name)
		for key, once := range got {
			assert.Len(t, once, 1, key)
		}
		k := got["key:7"][0]
		want, err := s.Inspect(ctx, "key:7")
		require.NoError(t, err)
		require.Len(t, want, 3)
		assert.Equal(t, want, k.States)
		assert.Equal(t, "10/1d", k.States[0].Name)
		b := day.Drain(k.States[0].Bucket, k.At.UnixMicro())
		assert.EqualValues(t, 8, day.Describe(b, k.At.UnixMicro()).Remaining)
		assert.Greater(t, k.TTL, 4*time.Hour, "two of ten a day are owed for 4.8 hours")
		assert.Less(t, k.TTL, 6*time.Hour)

		for range s.Keys(ctx) {
			break // after the first
		}
	}
}

func TestKeysThatCannotBeReadAreNotListed(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	require.NoError(t, s.Client.HSet(ctx, "heed:quota:2:key", "10/1h", "nonsense").Err())
	require.NoError(t, s.Client.Set(ctx, "heed:quota:2:text", "nonsense", 0).Err())
	assert.Empty(t, listed(t, s))
	assert.EqualValues(t, 1, s.Corrupt())
}

func TestListingKeysWithoutPermissionFails(t *testing.T) {
	for name, s := range map[string]*redisstore.Store{
		"redisstore: Client is nil": {},
		"NOPERM":                    {Client: withoutScan(t)},
		"connection refused": {
			Client: redis.NewClient(&redis.Options{Addr: redistest.Nowhere(t), MaxRetries: -1, DialerRetries: 1}),
		},
	} {
		var faults []error
		for _, err := range s.Keys(ctx) {
			faults = append(faults, err)
		}
		require.Len(t, faults, 1)
		assert.ErrorContains(t, faults[0], name)
	}
}

func withoutScan(t *testing.T) *redis.Client {
	t.Helper()
	admin := newClient(t, redistest.Shared(t))
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "limiter", "on", "nopass", "~*", "+@all", "-scan").Err())
	client := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limiter", Password: "any"})
	t.Cleanup(func() { client.Close() })
	return client
}
