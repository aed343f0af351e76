package serverside_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// A timeline is the responses of a Limiter and the Events of its Audit.
type timeline struct {
	answers []string
	events  []serverside.Event
}

// timelineOf sends thirty requests through cfg, always at the same times.
func timelineOf(t *testing.T, cfg serverside.Config, audit bool) (seen timeline) {
	var l eventLog
	if audit {
		cfg.Audit = l.all
	}
	synctest.Test(t, func(t *testing.T) {
		h := must(t, cfg).Wrap(new(ok))
		start := time.Now()
		for i := range 30 {
			path := []string{"/", "/other", "/free"}[i%7%3]
			w := askFrom(fmt.Sprintf("192.0.2.%d:1", i%2), h, "GET", path, "X-Forwarded-For", "198.51.100.7")
			seen.answers = append(seen.answers, fmt.Sprint(time.Since(start), w.Code, w.Header(), w.Body))
			time.Sleep(time.Duration(i%5) * 37 * time.Millisecond)
		}
	})
	for _, e := range l.events {
		if e.Kind != serverside.Configured { // it has all rules
			seen.events = append(seen.events, e)
		}
	}
	return seen
}

// With a second rule the fields are no longer those of a single policy.
func TestUnmatchedRuleChangesNothing(t *testing.T) {
	never := serverside.Rule{
		Name: "never", Policies: []quota.Policy{quota.PerMinute(1)}, If: func(*http.Request) bool { return false },
	}
	limited := func(r *http.Request) bool { return r.URL.Path != "/free" }
	twoForOther := func(r *http.Request) int64 { return int64(1 + len(r.URL.Path)/6) }
	for _, policy := range []quota.Policy{
		quota.PerSecond(4), quota.PerMinute(600),
		{Quota: 2, Window: time.Second, Burst: 7},
		{Quota: 10, Window: time.Second, Burst: 2, Algorithm: quota.LeakyBucket},
		{Quota: 3, Window: time.Second, Algorithm: quota.FixedWindow},
		{Quota: 3, Window: time.Second, Algorithm: quota.SlidingLog},
	} {
		sole := serverside.Rule{Name: "sole", Policies: []quota.Policy{policy}, If: limited, Cost: twoForOther}
		for _, cfg := range []serverside.Config{
			{}, {Style: ratelimit.Draft11}, {Style: ratelimit.Draft07}, {FieldsOnDenialOnly: true},
		} {
			for _, audit := range []bool{false, true} {
				cfg.Rules = []serverside.Rule{sole}
				alone := timelineOf(t, cfg, audit)
				cfg.Rules = []serverside.Rule{sole, never}
				among := timelineOf(t, cfg, audit)
				assert.Equal(t, among, alone, "%+v %+v", policy, cfg)
				assert.Equal(t, audit, len(alone.events) > 0)
			}
		}
	}
}
