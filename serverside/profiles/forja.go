package profiles

import (
	"context"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// ForjaRedis is the default for REDIS_URL in Forja's deployment, for redisstore.FromEnvOr.
const ForjaRedis = "redis://127.0.0.1:6379"

// A keyTable has the limits of API keys by fixed windows, and none for other keys.
type keyTable struct{ known serverside.Limits } // may be nil

// unlimited are policies of which none is enforced. Returning no policies would mean those of
// the rule.
var unlimited = serverside.KeyLimits{}.Policies()

// Limits implements serverside.Limits, for keys such as key:abc.
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

// windowNames are the names in forja.yaml. Other windows are named by their length.
var windowNames = map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h", 24 * time.Hour: "d"}

// Validate returns the faults of the table, if it has a Validate method.
func (t keyTable) Validate() error {
	if v, ok := t.known.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}
