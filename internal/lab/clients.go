package lab

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

// A Client is a way to send requests, and one row of the table.
type Client struct {
	Name string
	Over func(base http.RoundTripper) http.RoundTripper // called once for each process
}

// Clients returns those that need no other module. To add one, add a line.
func Clients() []Client {
	return []Client{
		{"no retry", func(base http.RoundTripper) http.RoundTripper { return base }},
		{"four attempts", fourAttempts},
		{"AWS standard", awsStandard},
		{"heed", func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} }},
		{"heed, NoBoard", func(base http.RoundTripper) http.RoundTripper {
			return &heed.Transport{Base: base, Board: heed.NoBoard}
		}},
		{"heed for handlers", forHandlers},
		{"heed for batches", forBatches},
		{"heed for SDKs", func(base http.RoundTripper) http.RoundTripper {
			return &heed.Transport{Base: base, Retry: heed.RetryPolicy{
				AttemptTimeout: 30 * time.Second, IdempotencyKey: heed.RandomIdempotencyKey,
			}}
		}},
		{"heed for nginx", forNginx},
	}
}

// The next three are of docs/settings.md. The batch has no pacer, because the loads are faster than
// the one there.

// forHandlers has the deadline that is recommended with it.
func forHandlers(base http.RoundTripper) http.RoundTripper {
	transport := &heed.Transport{Base: base, Retry: heed.RetryPolicy{
		MaxAttempts: 3, AttemptTimeout: 700 * time.Millisecond, MaxWait: 500 * time.Millisecond,
	}}
	return Func(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
		defer cancel()
		return transport.RoundTrip(req.WithContext(ctx))
	})
}

func forBatches(base http.RoundTripper) http.RoundTripper {
	return &heed.Transport{
		Base: base,
		Retry: heed.RetryPolicy{
			MaxAttempts: 10, AttemptTimeout: time.Minute, MaxWait: 90 * time.Minute, MaxOutage: 15 * time.Minute,
			MaxElapsed: -1,
		},
		Budget: &heed.LocalBudget{Ratio: 0.5},
	}
}

func forNginx(base http.RoundTripper) http.RoundTripper {
	return &heed.Transport{Base: base, Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{{
		Name:  "our nginx",
		Hosts: []string{"api.example.com"},
		Signs: []ratelimit.Sign{{Means: ratelimit.Limited, Status: []int{503}, Without: "Retry-After"}},
	}}}}
}

// fourAttempts is a loop as many programs have it: it doubles from 100 ms, with full jitter, and
// has no budget.
func fourAttempts(base http.RoundTripper) http.RoundTripper {
	return Func(func(req *http.Request) (resp *http.Response, err error) {
		for n := range 4 {
			resp, err = base.RoundTrip(req)
			if !failed(resp, err) || n == 3 || !sleep(req.Context(), jitter(100*time.Millisecond<<n)) {
				break
			}
		}
		return resp, err
	})
}

// awsStandard is the standard retry mode of the AWS SDKs: three attempts, full jitter of 1 s and
// 2 s, and a bucket of 500 tokens. A retry takes five. A retry that succeeds gives back what it
// took, and a first attempt that succeeds gives one. It does not read Retry-After.
func awsStandard(base http.RoundTripper) http.RoundTripper {
	bucket := &tokens{left: 500}
	return Func(func(req *http.Request) (resp *http.Response, err error) {
		paid := 0
		for n := range 3 {
			resp, err = base.RoundTrip(req)
			if !failed(resp, err) {
				bucket.put(max(1, paid))
				break
			}
			if n == 2 || !bucket.take(5) {
				break
			}
			paid = 5
			if !sleep(req.Context(), jitter(min(time.Second<<n, 20*time.Second))) {
				break
			}
		}
		return resp, err
	})
}

type tokens struct {
	mu   sync.Mutex // guards left
	left int
}

func (t *tokens) take(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left < n {
		return false
	}
	t.left -= n
	return true
}

func (t *tokens) put(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = min(t.left+n, 500)
}

// failed reports whether a loop tries again.
func failed(resp *http.Response, err error) bool {
	return err != nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
}

func jitter(most time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(most)))
}
