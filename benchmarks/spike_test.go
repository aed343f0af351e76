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
	"github.com/heedhttp/heed/internal/testenv"
)

// These benchmarks run the second experiment of examples/storm with rivals: whether a server
// recovers from five seconds of twice its load. All clients make three attempts of three seconds,
// and back off from one second to thirty as their documentation shows.
var spiked = []rival{
	{"bare loop", func(base http.RoundTripper) http.RoundTripper {
		return function(func(req *http.Request) (resp *http.Response, err error) {
			for range 3 {
				if resp, err = base.RoundTrip(req); err == nil {
					break
				}
			}
			return resp, err
		})
	}},
	{"no retries", bare.over},
	{"retryablehttp", func(base http.RoundTripper) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.Logger, c.RetryMax, c.HTTPClient = nil, 2, &http.Client{Transport: base}
		return &retryablehttp.RoundTripper{Client: c}
	}},
	{"rehttp", func(base http.RoundTripper) http.RoundTripper {
		failed := func(a rehttp.Attempt) bool { return a.Error != nil }
		retry := rehttp.RetryAll(rehttp.RetryMaxRetries(2), failed)
		return rehttp.NewTransport(base, retry, rehttp.ExpJitterDelay(time.Second, 30*time.Second))
	}},
	{"failsafe", func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(2).WithBackoff(time.Second, 30*time.Second)
		return failsafehttp.NewRoundTripper(base, policy.Build())
	}},
	{"failsafe, with its budget", func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(2).WithBackoff(time.Second, 30*time.Second)
		return failsafehttp.NewRoundTripper(base, policy.WithBudget(budget.New()).Build())
	}},
	{"heed, no budget", func(base http.RoundTripper) http.RoundTripper {
		return &heed.Transport{Base: base, Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxAttempts: 3}}
	}},
	{"heed", func(base http.RoundTripper) http.RoundTripper {
		return &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: 3}}
	}},
}

func TestASpikeOfLoadLeavesNoCollapse(t *testing.T) {
	runs, most := 4, 0.04 // few runs differ more
	if testenv.Long() {
		runs, most = 80, 0.03
	}
	for _, r := range spiked {
		var all lab.Log
		down := 0
		for seed := range uint64(runs) {
			log := lab.Spike(2).Run(t, lab.Plan{Seed: seed, End: lab.SpikeEnds}, r.make, overloaded)
			if lab.StaysDown(log.Calls) {
				down++
			}
			all.Calls, all.Attempts = append(all.Calls, log.Calls...), append(all.Attempts, log.Attempts...)
		}
		lost := lab.ShareLost(all.Calls, 0)
		t.Logf("%-26s %2d of %d runs stay down, %4.1f %% of the calls lost, %.2f requests a call",
			r.name, down, runs, 100*lost, float64(len(all.Attempts))/float64(len(all.Calls)))
		switch r.name {
		case "bare loop":
			assert.Positive(t, down, "otherwise this shows nothing")
		case "heed":
			assert.Zero(t, down)
			assert.LessOrEqual(t, lost, most)
		}
	}
}

func overloaded(network *lab.Random) http.RoundTripper { return &lab.Overloaded{Network: network} }
