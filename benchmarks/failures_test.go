package benchmarks_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/lab"
)

// These benchmarks run the first experiment of examples/storm with rivals: what retries add when
// a share of the requests fails. All clients make four attempts.
var failing = []rival{
	{"no retries", bare.over},
	{"retryablehttp", func(base http.RoundTripper) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.Logger, c.RetryMax, c.HTTPClient = nil, 3, &http.Client{Transport: base}
		c.ErrorHandler = retryablehttp.PassthroughErrorHandler
		return &retryablehttp.RoundTripper{Client: c}
	}},
	{"rehttp", func(base http.RoundTripper) http.RoundTripper {
		failed := rehttp.RetryStatuses(http.StatusServiceUnavailable)
		retry := rehttp.RetryAll(rehttp.RetryMaxRetries(3), failed)
		return rehttp.NewTransport(base, retry, rehttp.ExpJitterDelay(time.Second, 30*time.Second))
	}},
	{"failsafe", func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).WithBackoff(time.Second, 30*time.Second)
		return failsafehttp.NewRoundTripper(base, policy.Build())
	}},
	{"failsafe, with its budget", func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).WithBackoff(time.Second, 30*time.Second)
		return failsafehttp.NewRoundTripper(base, policy.WithBudget(budget.New()).Build())
	}},
	{"heed", func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} }},
}

func TestWhatRetriesAddToAServerThatFails(t *testing.T) {
	for _, scenario := range []struct {
		clients     int
		share, rate float64 // of the requests that fail; calls a second in all
		during      time.Duration
	}{
		{100, 0.2, 1000, 10 * time.Second},
		{100, 0.5, 1000, 10 * time.Second},
		{10, 1, 100, 5 * time.Minute},
		{100, 1, 100, 5 * time.Minute},
		{1000, 1, 100, 5 * time.Minute},
	} {
		for _, r := range failing {
			load := lab.Load{Clients: scenario.clients, Rate: scenario.rate / float64(scenario.clients)}
			log := load.Run(t, lab.Plan{Seed: 1, End: scenario.during}, r.make, func(network *lab.Random) http.RoundTripper {
				return lab.Failing(network, 0, scenario.share)
			})
			perCall := float64(len(log.Attempts)) / float64(len(log.Calls))
			t.Logf("%4d clients, %3.0f %% fail: %-26s %.2f requests a call, %3.0f %% lost",
				scenario.clients, 100*scenario.share, r.name, perCall, 100*lab.ShareLost(log.Calls, 0))
			switch r.name {
			case "no retries":
				assert.Len(t, log.Attempts, len(log.Calls))
			case "heed":
				if scenario.share == 1 {
					assert.LessOrEqual(t, perCall, 1.2)
				}
				assert.Less(t, perCall, 2.0) // the retries of calls that end well are given back
			}
		}
	}
}
