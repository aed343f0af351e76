package main

import (
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/chart"
	"github.com/heedhttp/heed/internal/lab"
)

// A client is a way to retry. In the pictures it has the colour of its kind.
type client struct {
	name string
	kind chart.Kind
	over wrapper
}

type wrapper = func(base http.RoundTripper, random *lab.Random) http.RoundTripper

// heeding is heed. Its jitter comes from random, so that each run gives the same figures.
func heeding(attempts int, budget heed.Budget, backoff heed.Backoff) wrapper {
	return func(base http.RoundTripper, random *lab.Random) http.RoundTripper {
		jitter := func(a heed.Attempt) time.Duration { return time.Duration(random.Share() * float64(backoff(a))) }
		return &heed.Transport{Base: base, Budget: budget, Retry: heed.RetryPolicy{MaxAttempts: attempts, Backoff: jitter}}
	}
}

// byDefault is the backoff of a RetryPolicy without one, before jitter.
func byDefault(a heed.Attempt) time.Duration {
	return heed.Exponential(max(50*time.Millisecond, 2*a.Took), 30*time.Second)(a)
}

// loop sends a request again at once, until it succeeds or the attempts are used up.
func loop(attempts int) wrapper {
	return func(base http.RoundTripper, _ *lab.Random) http.RoundTripper {
		return lab.Func(func(req *http.Request) (resp *http.Response, err error) {
			for n := 1; ; n++ {
				if resp, err = base.RoundTrip(req); n == attempts || lab.Succeeded(resp, err) {
					return resp, err
				}
			}
		})
	}
}

// tokenBucket adds a tenth of a token for each call, to five at most. A retry takes one.
func tokenBucket(base http.RoundTripper, _ *lab.Random) http.RoundTripper {
	var mu sync.Mutex // guards tokens
	tokens := 5.0
	add := func(n float64) bool {
		mu.Lock()
		defer mu.Unlock()
		if tokens+n <= 0 {
			return false
		}
		tokens = min(tokens+n, 5)
		return true
	}
	return lab.Func(func(req *http.Request) (resp *http.Response, err error) {
		add(0.1)
		for {
			if resp, err = base.RoundTrip(req); lab.Succeeded(resp, err) || !add(-1) {
				return resp, err
			}
		}
	})
}
