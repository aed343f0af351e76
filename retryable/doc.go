// Package retryable moves a program from hashicorp/go-retryablehttp to heed.
//
// The first step is one line. The callers of client stay as they are, and so do its
// RetryMax, waits, CheckRetry, hooks, logger and timeout:
//
//	retryable.Install(client, &heed.Transport{})
//
// A program that no longer needs a *retryablehttp.Client can use a heed.Transport in any
// http.Client. If, Backoff and LogTrace then convert its CheckRetry, its Backoff and its
// logger, such as hclog's.
//
// See docs/migrating.md for what behaves differently, and for each field.
package retryable
