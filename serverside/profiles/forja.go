package profiles

import (
	"context"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// ForjaRedis is where Forja's store is if REDIS_URL does not say, for
// redisstore.FromEnvOr.
const ForjaRedis = "redis://127.0.0.1:6379"

// A keyTable has the limits of API keys by windows of the clock, and no limits of others.
type keyTable struct{ known serverside.Limits } // may be nil

// unlimited are windows of which none is enforced. No policies at all would be those of the
// rule.
var unlimited = serverside.KeyLimits{}.Policies()

// Limits implements serverside.Limits, for keys that are named(key, …).
func (t keyTable) Limits(ctx context.Context, named string) ([]quota.Policy, error) {
	if t.known == nil {
		return unlimited, nil
	}
	known, err := t.known.Limits(ctx, strings.TrimPrefix(named, "key:"))
	if err == nil && len(known) == 0 {
		return unlimited, nil
	}
	var windows []quota.Policy
	for _, p := range known {
		p.Algorithm, p.Name = quota.FixedWindow, windowNames[p.Window]
		windows = append(windows, p)
	}
	return windows, err
}

// windowNames are as in forja.yaml. Any other window is called by its length.
var windowNames = map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h", 24 * time.Hour: "d"}

// Validate returns what is wrong with the table, if it can say.
func (t keyTable) Validate() error {
	if v, ok := t.known.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}
