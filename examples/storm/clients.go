package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
)

// A client is a way to retry. What is random in it is drawn from the dice of the run, so
// that a seed gives the same figures each time.
type client struct {
	name string
	over func(base http.RoundTripper, random *dice) http.RoundTripper
}

// transport is heed with at most so many attempts, and a backoff below edge. Without a
// budget it has heed's own.
func transport(attempts int, budget heed.Budget, edge heed.Backoff) func(http.RoundTripper, *dice) http.RoundTripper {
	return func(base http.RoundTripper, random *dice) http.RoundTripper {
		jitter := func(a heed.Attempt) time.Duration { return time.Duration(random.share() * float64(edge(a))) }
		return &heed.Transport{Base: base, Budget: budget, Retry: heed.RetryPolicy{MaxAttempts: attempts, Backoff: jitter}}
	}
}

// byDefault is the edge of the backoff of a RetryPolicy that has none, after a failure. That
// one cannot be seeded; a test compares the two.
func byDefault(a heed.Attempt) time.Duration {
	return heed.Exponential(max(50*time.Millisecond, 2*a.Took), 30*time.Second)(a)
}

// loop sends a request again at once as long as it fails and there are attempts left.
func loop(attempts int) func(http.RoundTripper, *dice) http.RoundTripper {
	return func(base http.RoundTripper, _ *dice) http.RoundTripper {
		return function(func(req *http.Request) (resp *http.Response, err error) {
			for n := 1; ; n++ {
				if resp, err = base.RoundTrip(req); n == attempts || succeeded(resp, err) {
					return resp, err
				}
			}
		})
	}
}

// limited gives each attempt so much time.
func limited(base http.RoundTripper, timeout time.Duration) http.RoundTripper {
	return function(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(req.Context(), timeout)
		defer cancel()
		return base.RoundTrip(req.WithContext(ctx))
	})
}

type function func(*http.Request) (*http.Response, error)

func (f function) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func succeeded(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

func answer(req *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
}

// offer has calls begin at random until the end, gap apart in the mean, and waits for them.
// Each goes through the client that pick returns; done is told when it began and whether
// it succeeded.
func offer(load *dice, end time.Duration, gap func(at time.Duration) time.Duration, pick func() http.RoundTripper, done func(at time.Duration, ok bool)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	start := time.Now()
	for {
		time.Sleep(load.wait(gap(time.Since(start))))
		at, rt := time.Since(start), pick()
		if at >= end {
			return
		}
		calls.Go(func() {
			req, _ := http.NewRequest(http.MethodGet, "http://api.example.com/", nil)
			done(at, succeeded(rt.RoundTrip(req)))
		})
	}
}

// dice are random numbers that several goroutines draw.
type dice struct {
	mu     sync.Mutex // guards random
	random *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{random: rand.New(rand.NewPCG(seed, stream))} }

// wait draws from an exponential distribution.
func (d *dice) wait(mean time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.random.ExpFloat64() * float64(mean))
}

// share draws from [0, 1).
func (d *dice) share() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Float64()
}
