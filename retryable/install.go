package retryable

import (
	"context"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// Install lets t do the retrying of c. It completes t and changes c, so neither
// may be in use yet; c must not be nil. If t is nil, a zero heed.Transport.
// Whoever wants to close idle connections, or to trace, keeps t.
//
// From then on t decides what is retried, and when, for Do and its shortcuts as
// for the StandardClient. The last response is returned as it came, its body
// unread and the error nil; a failure is the *url.Error of c's http.Client,
// around t's error. t sits below the http.Client: a redirect is followed as
// before, and is a request of its own to t.
//
// Of the fields of c:
//
//   - RetryMax, CheckRetry and ErrorHandler are replaced; Backoff, RetryWaitMin
//     and RetryWaitMax no longer matter. What they said can be said in t.Retry,
//     with If and Backoff.
//   - HTTPClient is replaced by a copy, so that others who share it are not
//     concerned. Its Transport becomes t.Base if that is nil, and is left out
//     otherwise. Its Timeout, which bounded each attempt, bounds all attempts and
//     waits together: t.Retry.AttemptTimeout is what it was. Its
//     CloseIdleConnections does nothing any more, because c calls it whenever a
//     request fails; t's does it.
//   - RequestLogHook is called for each attempt and ResponseLogHook for each
//     response, as before. PrepareRetry is called for each retry; if it fails, its
//     error is final. Both now change that attempt alone.
//   - Logger is told of each request and of its failure, no longer of the retries
//     between. See heed.LogTrace.
//
// The error of a Request's ResponseHandler is final. It is returned, and the
// response's body closed.
//
// A body that was given to retryablehttp.NewRequest is replayed whatever its
// size. One that only streams, through StandardClient or FromRequest, is kept
// up to t.Retry.MaxBodyBuffer; if that is zero, Install sets it to 8 MiB. An
// io.ReadSeeker is rewound for each attempt, as before, even if the one before
// still reads it: bytes are safer.
//
// What an earlier Install put into c, and a heed.Transport that was there
// without one, is replaced, not wrapped.
func Install(c *retryablehttp.Client, t *heed.Transport) {
	if c == nil {
		panic("retryable: Install: the client is nil")
	}
	if t == nil {
		t = new(heed.Transport)
	}
	own := httpClient(c)
	complete(t, own.Transport)
	own.Transport = newInstalled(c, t)
	c.HTTPClient = &own
	c.RetryMax, c.CheckRetry, c.ErrorHandler = 0, never, orError
}

// bodyBuffer is how much of a streamed body is kept. go-retryablehttp has read
// most of them into memory before, whatever their size; a file it has not.
const bodyBuffer = 8 << 20

// httpClient is a copy of c's http.Client, or of the one c would make.
func httpClient(c *retryablehttp.Client) http.Client {
	if c.HTTPClient == nil {
		return *retryablehttp.NewClient().HTTPClient
	}
	return *c.HTTPClient
}

// complete gives t what it takes to replace c's loop.
func complete(t *heed.Transport, former http.RoundTripper) {
	if t.Base == nil {
		t.Base = below(former)
	}
	if _, ok := t.Base.(*resender); !ok {
		t.Base = &resender{t.Base}
	}
	if t.Retry.MaxBodyBuffer == 0 {
		t.Retry.MaxBodyBuffer = bodyBuffer
	}
}

// below is what heed sends with, if rt is heed: two loops, one around the other,
// would make the square of the attempts.
func below(rt http.RoundTripper) http.RoundTripper {
	switch rt := rt.(type) {
	case *installed:
		return below(rt.t)
	case *heed.Transport:
		return below(rt.Base)
	case *resender:
		return below(rt.base)
	case nil:
		return defaultBase
	}
	return rt
}

// defaultBase is that of heed: not a Transport that was made the default since.
var defaultBase = http.DefaultTransport

// never is the CheckRetry that leaves everything to heed.
func never(context.Context, *http.Response, error) (bool, error) { return false, nil }

// orError is the ErrorHandler that returns either a response or an error, and
// leaves no body open with the latter.
func orError(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err == nil {
		return resp, nil
	}
	if resp != nil {
		resp.Body.Close()
	}
	return nil, err
}
