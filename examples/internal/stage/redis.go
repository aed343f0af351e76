package stage

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Ping finds out whether there is a Redis at addr. What go-redis would say of it on
// its own is said nowhere.
func Ping(ctx context.Context, addr string) error {
	logging.Disable()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: 2 * time.Second})
	defer client.Close()
	return client.Ping(ctx).Err()
}
