package retryable

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// An installed is the Transport of c's http.Client. It has no
// CloseIdleConnections: c would call it whenever a request fails, and throw away
// the connections of all the others.
type installed struct {
	c     *retryablehttp.Client
	t     *heed.Transport
	trace heed.Trace
}

func newInstalled(c *retryablehttp.Client, t *heed.Transport) *installed {
	i := &installed{c: c, t: t}
	i.trace.Decided = i.decided
	return i
}

// RoundTrip is t's. c calls its hooks for the first attempt and for the last
// response; those between, it does not see.
func (i *installed) RoundTrip(req *http.Request) (*http.Response, error) {
	if i.c.RequestLogHook == nil && i.c.ResponseLogHook == nil && i.c.PrepareRetry == nil {
		return i.t.RoundTrip(req)
	}
	ctx := context.WithValue(req.Context(), clientKey{}, i.c)
	out := req.WithContext(heed.WithTrace(ctx, &i.trace))
	resp, err := i.t.RoundTrip(out)
	if resp != nil && resp.Request == out {
		resp.Request = req
	}
	return resp, err
}

func (i *installed) decided(a heed.Attempt, v heed.Verdict, _ time.Duration) {
	if v == heed.Again && a.Response != nil && i.c.ResponseLogHook != nil {
		i.c.ResponseLogHook(logger(i.c), a.Response)
	}
}

// clientKey is the context key of the *retryablehttp.Client whose hooks a
// request is shown to: a heed.Transport may serve several.
type clientKey struct{}

// A resender is the Base of an installed heed.Transport. It shows each retry to
// the hooks before it sends it.
type resender struct{ base http.RoundTripper }

func (r *resender) RoundTrip(req *http.Request) (*http.Response, error) {
	n := heed.ResendCount(req.Context())
	c, ok := req.Context().Value(clientKey{}).(*retryablehttp.Client)
	if n == 0 || !ok {
		return r.base.RoundTrip(req)
	}
	out := req.WithContext(req.Context())
	out.Header = req.Header.Clone() // the hooks may write to it, and the caller owns req's
	if err := prepare(c, out, n); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := r.base.RoundTrip(out)
	if resp != nil && resp.Request == out {
		resp.Request = req
	}
	return resp, err
}

// CloseIdleConnections closes those of the base, if it can.
func (r *resender) CloseIdleConnections() {
	if b, ok := r.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// A prepareError is that of a PrepareRetry. It is final, as c has it.
type prepareError struct{ err error }

func (e *prepareError) Error() string { return "retryable: PrepareRetry: " + e.err.Error() }
func (e *prepareError) Unwrap() error { return e.err }
func (e *prepareError) NonRetriable() {}

func prepare(c *retryablehttp.Client, req *http.Request, n int) error {
	if c.PrepareRetry != nil {
		if err := c.PrepareRetry(req); err != nil {
			return &prepareError{err}
		}
	}
	if c.RequestLogHook != nil {
		c.RequestLogHook(logger(c), req, n)
	}
	return nil
}

// logger is what c hands to its hooks.
func logger(c *retryablehttp.Client) retryablehttp.Logger {
	switch l := c.Logger.(type) {
	case retryablehttp.LeveledLogger:
		return leveled{l}
	case retryablehttp.Logger:
		return l
	}
	return nil
}

// leveled makes a Logger of a LeveledLogger.
type leveled struct{ retryablehttp.LeveledLogger }

func (l leveled) Printf(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }
