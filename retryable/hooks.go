package retryable

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// trace returns a Trace that calls the hooks of c and then t, or LogTrace of c's Logger if t is
// nil.
func (i *installed) trace(t *heed.Trace) *heed.Trace {
	if t == nil {
		t = i.logTrace()
	}
	all := *t
	all.Decided = func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
		i.decided(a, v, wait)
		if t.Decided != nil {
			t.Decided(a, v, wait)
		}
	}
	return &all
}

// logTrace is LogTrace of c's Logger. It logs, too, that a request is not repeated for want of
// an Idempotency-Key.
func (i *installed) logTrace() *heed.Trace {
	h := handler{func() any { return i.c.Logger }}
	t := h.trace()
	decided := t.Decided
	t.Decided = func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
		if callOf(a.Request.Context()).unsafe {
			h.log(slog.LevelWarn, "request not retried", []any{
				"method", a.Request.Method, "host", a.Request.URL.Host,
				"status", a.Response.StatusCode, "cause", errUnsafe.Error(),
			})
			return
		}
		decided(a, v, wait)
	}
	return t
}

// decided calls c's ResponseLogHook for a response that is retried; c calls it for the last one.
func (i *installed) decided(a heed.Attempt, v heed.Verdict, wait time.Duration) {
	c := callOf(a.Request.Context())
	c.attempts, c.verdict = a.Number, v
	if isPrepareError(a.Err) {
		c.attempts-- // it was not sent
	}
	deadline, ok := a.Request.Context().Deadline()
	c.late = v == heed.OutOfTime && ok && time.Until(deadline) <= wait
	if v == heed.Again && a.Response != nil && i.c.ResponseLogHook != nil {
		i.c.ResponseLogHook(logger(i.c), a.Response)
	}
}

// A resender is the Base of an installed heed.Transport. Before a retry it calls the client's
// hooks; go-retryablehttp calls them before the first attempt.
type resender struct {
	base   http.RoundTripper
	client *installed // nil in the Base that Install sets in the caller's heed.Transport
}

func (r *resender) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	if c == nil || c.client != r.client { // the caller uses the heed.Transport elsewhere, too
		return r.base.RoundTrip(req)
	}
	out := req
	if c.sent > 0 {
		// The hooks may write to it, and the caller owns req. A Clone has trailers of its own.
		url := *req.URL
		out = req.WithContext(req.Context())
		out.URL, out.Header = &url, req.Header.Clone()
		if err := r.client.prepare(out, c.sent); err != nil {
			return nil, err
		}
	}
	c.sent++
	return sendWithin(r.client.http.Timeout, r.base, out)
}

// CloseIdleConnections closes those of the base, if it can.
func (r *resender) CloseIdleConnections() {
	if b, ok := r.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// prepare calls the hooks before the nth retry. If they fail or panic, it closes the body.
func (i *installed) prepare(req *http.Request, n int) error {
	body := req.Body
	prepared := false
	defer func() {
		if !prepared && body != nil {
			body.Close()
		}
	}()
	if i.c.PrepareRetry != nil {
		if err := i.c.PrepareRetry(req); err != nil {
			return &prepareError{err}
		}
	}
	if i.c.RequestLogHook != nil {
		i.c.RequestLogHook(logger(i.c), req, n)
	}
	prepared = true
	return nil
}

// A prepareError is the error of a PrepareRetry. It is final, as in go-retryablehttp.
type prepareError struct{ err error }

func (e *prepareError) Error() string { return "retryable: PrepareRetry: " + e.err.Error() }
func (e *prepareError) Unwrap() error { return e.err }
func (e *prepareError) NonRetriable() {} // as heed asks

func isPrepareError(err error) bool { return errors.As(err, new(*prepareError)) }

// logger is what c gives to its hooks.
func logger(c *retryablehttp.Client) retryablehttp.Logger {
	switch l := c.Logger.(type) {
	case retryablehttp.LeveledLogger:
		return leveled{l}
	case retryablehttp.Logger:
		return l
	}
	return nil
}

// A leveled is a Logger that logs to a LeveledLogger.
type leveled struct{ retryablehttp.LeveledLogger }

func (l leveled) Printf(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }
