package retryable

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// If converts a CheckRetry for the If of a heed.RetryPolicy. If check is nil, so is the
// result, and heed.Worthwhile decides.
//
// check is called for each attempt, with the context of the request, and with an error
// within a *url.Error, as go-retryablehttp calls it. An error that it returns is dropped,
// because heed never turns a response into an error.
//
// check replaces heed.Worthwhile as a whole. So with go-retryablehttp's own policies a
// POST is repeated although the server may have acted upon it; the example shows how to
// have both.
func If(check retryablehttp.CheckRetry) func(heed.Attempt) bool {
	if check == nil {
		return nil
	}
	return func(a heed.Attempt) bool {
		again, _ := ask(check, a)
		return again
	}
}

// ask asks check about an attempt. It is not asked about an error of PrepareRetry, which is
// final.
func ask(check retryablehttp.CheckRetry, a heed.Attempt) (again bool, err error) {
	if a.Response == nil && a.Err == nil || isPrepareError(a.Err) {
		return false, nil
	}
	return check(contextOf(a.Request), a.Response, asURLError(a.Request, a.Err))
}

func contextOf(req *http.Request) context.Context {
	if req == nil {
		return context.Background()
	}
	return req.Context()
}

// asURLError puts err into a *url.Error, unless it is one. go-retryablehttp's policies treat
// every other error as worth a retry.
func asURLError(req *http.Request, err error) error {
	if _, ok := err.(*url.Error); ok || err == nil {
		return err
	}
	wrapped := &url.Error{Op: http.MethodGet, Err: err}
	if req != nil {
		wrapped.Op, wrapped.URL = req.Method, req.URL.Redacted()
	}
	return wrapped
}

// Backoff converts a Backoff of go-retryablehttp for the Backoff of a heed.RetryPolicy. b is
// called with min and max. If b is nil, so is the result, and heed's own backoff is used.
//
// b sees the response without its Retry-After and without its body: heed has read
// Retry-After itself, and waits at least that long. A negative wait, which is what b
// returns when it overflows, counts as max.
//
// go-retryablehttp's DefaultBackoff has no jitter: all clients that failed together come
// back together. heed.EqualJitter around it, with twice the min, never waits less than min.
func Backoff(b retryablehttp.Backoff, min, max time.Duration) heed.Backoff {
	if b == nil {
		return nil
	}
	return func(a heed.Attempt) time.Duration {
		wait := b(min, max, a.Number-1, hintless(a.Response))
		if wait < 0 {
			return max
		}
		return wait
	}
}

// hintless returns a copy of resp without Retry-After and without its body.
func hintless(resp *http.Response) *http.Response {
	if resp == nil {
		return nil
	}
	out := *resp
	out.Header = maps.Clone(resp.Header)
	delete(out.Header, "Retry-After")
	out.Body = http.NoBody
	return &out
}
