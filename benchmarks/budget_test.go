package benchmarks_test

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/stretchr/testify/assert"
)

// These tests count the requests that an upstream gets while it is down. 1000 GETs start at the
// same time, and each attempt gets a 503. All clients back off, from a second on and twice as
// long each time, with jitter if they have it. The time is simulated.

const herd = 1000

func TestAnOutageMeetsAtMostATenthMore(t *testing.T) {
	for _, r := range []rival{
		{"bare loop, 4 attempts", overLoop},
		{"rehttp", overRehttp(rehttp.ExpJitterDelay(time.Second, 30*time.Second))},
		{"retryablehttp", overRetryablehttp(time.Second, 30*time.Second)},
		{"failsafe", overFailsafe(time.Second, 30*time.Second)},
		{"failsafe, with its budget", overFailsafeBudget},
	} {
		requests, took := outageOf(t, r)
		t.Logf("%-26s %5d requests, %4.2f for each, in %v", r.name, requests, float64(requests)/herd, took)
	}
	requests, took := outageOf(t, ours)
	t.Logf("%-26s %5d requests, %4.2f for each, in %v", ours.name, requests, float64(requests)/herd, took)
	assert.LessOrEqual(t, requests, herd+herd/10+10+int(took/time.Second))
	assert.GreaterOrEqual(t, requests, herd+herd/10, "a budget must be spendable")
}

// outageOf returns how many requests the upstream gets, and for how long.
func outageOf(t *testing.T, r rival) (requests int, took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		rt := r.over(function(func(req *http.Request) (*http.Response, error) {
			n.Add(1)
			time.Sleep(10 * time.Millisecond)
			return &http.Response{StatusCode: 503, ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}))
		began := time.Now()
		var wg sync.WaitGroup
		for range herd {
			wg.Go(func() {
				if resp, err := rt.RoundTrip(request(t, "GET", url, nil)); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		requests, took = int(n.Load()), time.Since(began).Round(10*time.Millisecond)
	})
	return requests, took
}

type function func(*http.Request) (*http.Response, error)

func (f function) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// overLoop is the retry loop that everybody writes first.
func overLoop(base http.RoundTripper) http.RoundTripper {
	return function(func(req *http.Request) (resp *http.Response, err error) {
		for attempt := 1; ; attempt++ {
			resp, err = base.RoundTrip(req)
			if attempt == 4 || err == nil && resp.StatusCode < 500 {
				return resp, err
			}
			time.Sleep(time.Second << (attempt - 1))
		}
	})
}

func overFailsafeBudget(base http.RoundTripper) http.RoundTripper {
	policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).
		WithBackoff(time.Second, 30*time.Second).WithBudget(budget.New())
	return failsafehttp.NewRoundTripper(base, policy.Build())
}
