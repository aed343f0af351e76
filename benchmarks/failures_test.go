package benchmarks_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
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
		{10, 1, 100, 90 * time.Second},
		{100, 1, 100, 90 * time.Second},
		{1000, 1, 100, 90 * time.Second},
	} {
		for _, r := range failing {
			synctest.Test(t, func(t *testing.T) {
				var sent, lost atomic.Int64
				base := function(func(req *http.Request) (*http.Response, error) {
					sent.Add(1)
					status := http.StatusOK
					if rand.Float64() < scenario.share {
						status = http.StatusServiceUnavailable
					}
					return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1,
						Header: http.Header{}, Body: http.NoBody, Request: req}, nil
				})
				clients := make([]http.RoundTripper, scenario.clients)
				for i := range clients {
					clients[i] = r.over(base)
				}
				calls, start := 0, time.Now()
				var all sync.WaitGroup
				for time.Since(start) < scenario.during {
					time.Sleep(time.Duration(rand.ExpFloat64() / scenario.rate * float64(time.Second)))
					client := clients[rand.IntN(len(clients))]
					calls++
					all.Go(func() {
						resp, err := client.RoundTrip(request(t, "GET", url, nil))
						if err != nil || resp.StatusCode != http.StatusOK {
							lost.Add(1)
						}
					})
				}
				all.Wait()
				perCall := float64(sent.Load()) / float64(calls)
				t.Logf("%4d clients, %3.0f %% fail: %-26s %.2f requests a call, %3.0f %% lost",
					scenario.clients, 100*scenario.share, r.name, perCall, 100*float64(lost.Load())/float64(calls))
				switch r.name {
				case "no retries":
					assert.EqualValues(t, calls, sent.Load())
				case "heed":
					if scenario.share == 1 {
						assert.LessOrEqual(t, perCall, 1.25)
					}
					assert.Less(t, perCall, 1.4)
				}
			})
		}
	}
}
