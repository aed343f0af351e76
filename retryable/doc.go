// Package retryable brings programs that use hashicorp/go-retryablehttp to heed.
//
// Install puts heed into a *retryablehttp.Client that exists already, whose
// callers stay as they are. If and Backoff make one's own CheckRetry and Backoff
// a part of a heed.RetryPolicy. Whoever needs no *retryablehttp.Client can do
// without this package: a heed.Transport is the Transport of any http.Client.
package retryable
