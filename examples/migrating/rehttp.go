package main

import (
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"

	"github.com/heedhttp/heed"
)

func rehttpBefore(base http.RoundTripper) *http.Client {
	transport := rehttp.NewTransport(base,
		rehttp.RetryAll(
			rehttp.RetryMaxRetries(3),
			rehttp.RetryAny(rehttp.RetryTimeoutErr(), rehttp.RetryStatuses(409, 429, 503)),
		),
		rehttp.ExpJitterDelay(time.Second, 30*time.Second))
	transport.PerAttemptTimeout = 10 * time.Second
	return &http.Client{Transport: transport}
}

func rehttpAfter(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &heed.Transport{
		Base: base,
		Retry: heed.RetryPolicy{
			MaxAttempts: 4,
			If: func(a heed.Attempt) bool {
				return heed.Worthwhile(a) || a.Response != nil && a.Response.StatusCode == 409
			},
			Backoff:        heed.FullJitter(heed.Exponential(time.Second, 30*time.Second)),
			AttemptTimeout: 10 * time.Second,
		},
	}}
}
