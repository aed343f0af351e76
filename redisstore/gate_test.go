package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

func TestStoreImplementsQuotaGate(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := newClient(t, server)
	clients := map[string]redis.UniversalClient{"one": client, "cluster": newCluster(t), "ring": newRing(t)}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			stores := 0
			quotatest.RunGate(t, func(*testing.T) quota.Gate {
				stores++
				return &redisstore.Store{Client: client, Prefix: fmt.Sprintf("store %d:", stores), Timeout: patient}
			})
		})
	}
	assert.Empty(t, client.Keys(ctx, "*").Val(), "released holds are removed")
}
