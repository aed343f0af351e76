package heed_test

import (
	"context"
	"fmt"
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

// The cost of the default key. Only a host with a cool-down needs one, but a pacer does for each request.
func BenchmarkByCredential(b *testing.B) {
	many := `"iss":"https://login.example.com/acme/v2.0","sub":"a"`
	for i := range 20 {
		many += fmt.Sprintf(`,"claim %d":["a value of 32 characters, or so"]`, i)
	}
	for _, bench := range []struct{ name, token string }{
		{"opaque", "s3cret"},
		{"JWT", jwt(`"iss":"cdp","sub":"organizations/acme"`, 1)},
		{"JWT of 1 KiB", jwt(many, 1)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			req := get(context.Background())
			req.Header.Set("Authorization", "Bearer "+bench.token)
			b.ReportAllocs()
			for b.Loop() {
				heed.ByCredential(req)
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

// The cost of a good answer while another route of the host always fails.
func BenchmarkRoundTripBesideABrokenRoute(b *testing.B) {
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/broken" {
			return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
		}
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
	})
	tr := &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: 1}}
	good, broken := get(context.Background()), get(context.Background())
	broken.URL.Path = "/broken"
	b.Run("no broken route", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tr.RoundTrip(good)
		}
	})
	for range 10 {
		tr.RoundTrip(broken)
		tr.RoundTrip(good)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tr.RoundTrip(good)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				tr.RoundTrip(good)
			}
		})
	})
	b.Run("parallel, each tenth fails", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				if n%10 == 0 {
					tr.RoundTrip(broken)
				} else {
					tr.RoundTrip(good)
				}
			}
		})
	})
}
