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

// trace is t with the hooks of c, or LogTrace of c's Logger with them if t is nil.
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

// logTrace is LogTrace of c's Logger. It tells, too, what CheckRetry would have repeated.
func (i *installed) logTrace() *heed.Trace {
	h := handler{func() any { return i.c.Logger }}
	t := h.trace()
	decided := t.Decided
	t.Decided = func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
		if c := callOf(contextOf(a.Request)); c != nil && c.unsafe && a.Response != nil {
			h.log(slog.LevelWarn, "request not retried", []any{
				"method", a.Request.Method, "host", a.Request.URL.Host,
				"status", a.Response.StatusCode, "cause", errUnsafe.Error(),
			})
		}
		decided(a, v, wait)
	}
	return t
}

// decided calls c's hook for a response that is retried; c calls it for the last one.
func (i *installed) decided(a heed.Attempt, v heed.Verdict, wait time.Duration) {
	ctx := contextOf(a.Request)
	if c := callOf(ctx); c != nil {
		deadline, ok := ctx.Deadline()
		c.attempts, c.took, c.verdict = a.Number, a.Took, v
		c.late = v == heed.OutOfTime && ok && time.Until(deadline) <= wait
	}
	if v == heed.Again && a.Response != nil && i.c.ResponseLogHook != nil {
		i.c.ResponseLogHook(logger(i.c), a.Response)
	}
}

// A resender is the Base of an installed heed.Transport. It calls the hooks for each retry
// before it sends it; c calls them for the first attempt.
type resender struct{ base http.RoundTripper }

func (r *resender) RoundTrip(req *http.Request) (*http.Response, error) {
	n := heed.ResendCount(req.Context())
	call := callOf(req.Context())
	if n == 0 || call == nil {
		return r.base.RoundTrip(req)
	}
	out := req.WithContext(req.Context())
	out.Header = req.Header.Clone() // the hooks may write to it, and the caller owns req's
	if err := prepare(call.client.c, out, n); err != nil {
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

// A prepareError is the error of a PrepareRetry. It is final, as c has it.
type prepareError struct{ err error }

func (e *prepareError) Error() string { return "retryable: PrepareRetry: " + e.err.Error() }
func (e *prepareError) Unwrap() error { return e.err }
func (e *prepareError) NonRetriable() {}

func isPrepareError(err error) bool { return errors.As(err, new(*prepareError)) }

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

// leveled makes a LeveledLogger a Logger.
type leveled struct{ retryablehttp.LeveledLogger }

func (l leveled) Printf(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }
