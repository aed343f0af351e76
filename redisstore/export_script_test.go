package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// ScriptSHA is what SendAll's script is called by.
var ScriptSHA = probeScript.sha

// SendAll has a script executed for each of keys, in one round trip, and returns
// its errors.
func SendAll(ctx context.Context, client redis.UniversalClient, keys ...string) (errs []error) {
	var all []*execution
	for _, key := range keys {
		all = append(all, &execution{script: probeScript, keys: []string{key}})
	}
	sendAll(ctx, client, all...)
	for _, e := range all {
		errs = append(errs, e.err)
	}
	return errs
}
