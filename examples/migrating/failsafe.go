package main

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/heedhttp/heed"
)

func failsafeBefore(base http.RoundTripper) *http.Client {
	retries := failsafehttp.NewRetryPolicyBuilder().
		WithMaxRetries(3).
		WithBackoff(time.Second, 30*time.Second).
		WithMaxDuration(2 * time.Minute).
		Build()
	each := timeout.New[*http.Response](10 * time.Second)
	return &http.Client{Transport: failsafehttp.NewRoundTripper(base, retries, each)}
}

func failsafeAfter(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &heed.Transport{
		Base: base,
		Retry: heed.RetryPolicy{
			MaxAttempts:    4,
			Backoff:        heed.EqualJitter(heed.Exponential(2*time.Second, 30*time.Second)),
			MaxElapsed:     2 * time.Minute,
			AttemptTimeout: 10 * time.Second,
		},
	}}
}

// withBreaker keeps a policy that heed has no counterpart of, around all attempts.
func withBreaker(base http.RoundTripper) *http.Client {
	breaker := circuitbreaker.NewWithDefaults[*http.Response]()
	return &http.Client{Transport: failsafehttp.NewRoundTripper(&heed.Transport{Base: base}, breaker)}
}
