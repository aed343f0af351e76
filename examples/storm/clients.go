package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
)

// A client is a way to retry. Its random numbers are those of the run, so that a seed
// always gives the same figures.
type client struct {
	name string
	over func(base http.RoundTripper, random *dice) http.RoundTripper
}

// ours is heed as it comes, with at most so many attempts.
func ours(attempts int, base http.RoundTripper, random *dice) *heed.Transport {
	return &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: attempts, Backoff: random.backoff()}}
}

// loop sends a request again at once as long as it fails and there are attempts left.
func loop(attempts int) func(http.RoundTripper, *dice) http.RoundTripper {
	return func(base http.RoundTripper, _ *dice) http.RoundTripper {
		return function(func(req *http.Request) (resp *http.Response, err error) {
			for n := 1; ; n++ {
				if resp, err = base.RoundTrip(req); n == attempts || !failed(resp, err) {
					return resp, err
				}
			}
		})
	}
}

func failed(resp *http.Response, err error) bool {
	return err != nil || resp.StatusCode != http.StatusOK
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

func answer(req *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
}

// call reports whether a GET through rt was answered with 200.
func call(rt http.RoundTripper) bool {
	req, err := http.NewRequest(http.MethodGet, "http://api.example.com/", nil)
	if err != nil {
		panic(err)
	}
	resp, err := rt.RoundTrip(req)
	return !failed(resp, err)
}

// dice are random numbers of which several goroutines draw.
type dice struct {
	mu     sync.Mutex // guards random
	random *rand.Rand
	plain  bool // heed draws its backoff from random numbers of its own
}

func newDice(seed, stream uint64) *dice { return &dice{random: rand.New(rand.NewPCG(seed, stream))} }

// wait draws from an exponential distribution.
func (d *dice) wait(mean time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.random.ExpFloat64() * float64(mean))
}

func (d *dice) share() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Float64()
}

// jitter is heed.FullJitter with the random numbers of the run.
func (d *dice) jitter(b heed.Backoff) heed.Backoff {
	return func(a heed.Attempt) time.Duration { return time.Duration(d.share() * float64(b(a))) }
}

// backoff is what a heed.RetryPolicy without a Backoff does after a failure, with the
// random numbers of the run. A test compares the two.
func (d *dice) backoff() heed.Backoff {
	if d.plain {
		return nil
	}
	return d.jitter(func(a heed.Attempt) time.Duration {
		return heed.Exponential(max(50*time.Millisecond, 2*a.Took), 30*time.Second)(a)
	})
}
