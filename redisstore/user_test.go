package redisstore_test

import (
	"sync"
	"testing"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Store may open many connections. All use the client's user.
func TestEveryConnectionUsesTheUserOfTheClient(t *testing.T) {
	mostlyWaits(t)
	admin := newClient(t, redistest.Shared(t))
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "+@all", "~heed:quota:2:mine").Err())
	for name, enabled := range map[string]bool{"default options": false, "ContextTimeoutEnabled": true} {
		limited := redis.NewClient(&redis.Options{
			Addr: admin.Options().Addr, Username: "limited", Password: "any", ContextTimeoutEnabled: enabled,
		})
		defer limited.Close()
		s := &redisstore.Store{Client: limited, Timeout: patient}
		limit := compile(t, quota.PerDay(1_000_000))
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				_, err := s.Take(ctx, nil, quota.Charge{Key: "theirs", Limit: limit})
				assert.ErrorContains(t, err, "NOPERM", name)
				_, err = s.Take(ctx, nil, quota.Charge{Key: "mine", Limit: limit})
				assert.NoError(t, err, name)
			})
		}
		all.Wait()
	}
}
