package heed_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

// answer is a base without a network. It makes a new response each time.
type answer struct{ status int }

func (a *answer) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Body: http.NoBody, Request: req}, nil
}

// The cost of a RoundTrip without a retry, beside that of the bare base.
func BenchmarkRoundTrip(b *testing.B) {
	bare := &answer{200}
	for _, bench := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"bare", bare},
		{"heed", &heed.Transport{Base: bare}},
		{"profiles", &heed.Transport{Base: bare, Retry: heed.RetryPolicy{Profiles: ratelimit.Vendors()}}},
	} {
		b.Run(bench.name+"/serial", func(b *testing.B) {
			req := get(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				bench.rt.RoundTrip(req)
			}
		})
		b.Run(bench.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				req := get(context.Background())
				for pb.Next() {
					bench.rt.RoundTrip(req)
				}
			})
		})
	}
}

// The cost of a call with one, two and eleven attempts.
func BenchmarkRetry(b *testing.B) {
	for _, bench := range []struct {
		name     string
		attempts int
	}{{"one", 1}, {"two", 2}, {"eleven", 11}} {
		b.Run(bench.name, func(b *testing.B) {
			tr := &heed.Transport{Base: &answer{503}, Budget: heed.Unlimited}
			tr.Retry = heed.RetryPolicy{MaxAttempts: bench.attempts, Backoff: func(heed.Attempt) time.Duration { return 0 }}
			req := get(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				tr.RoundTrip(req)
			}
		})
	}
}

func BenchmarkLocalBudget(b *testing.B) {
	b.Run("Deposit", func(b *testing.B) {
		var budget heed.LocalBudget
		for b.Loop() {
			budget.Deposit(b.Context(), key)
		}
	})
	b.Run("Deposit/parallel", func(b *testing.B) {
		var budget heed.LocalBudget
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				budget.Deposit(b.Context(), key)
			}
		})
	})
	b.Run("Withdraw", func(b *testing.B) {
		var budget heed.LocalBudget
		for b.Loop() {
			budget.Withdraw(b.Context(), key)
		}
	})
}
