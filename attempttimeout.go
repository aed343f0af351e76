package heed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// attemptTimeout returns how long the next attempt may take, or 0 if there is no limit. split says
// that this is a part of the time until the deadline.
func (c *call) attemptTimeout() (d time.Duration, split bool) {
	p := c.policy
	if p.AttemptTimeout > 0 || !p.SplitDeadline || c.attempts()+1 >= p.maxAttempts() || !c.out.mayResend(c.req) {
		return max(0, p.AttemptTimeout), false
	}
	deadline, ok := c.req.Context().Deadline()
	if !ok {
		return 0, false
	}
	return max(0, time.Until(deadline)/2), true
}

// roundTripWithin sends req with a context of its own, and cancels it if d is positive and the response's
// header takes longer. The attempt's context then lives until the body is closed or ends: if it ended with the header, the
// body would be cut off.
func roundTripWithin(base http.RoundTripper, req *http.Request, d time.Duration, split bool) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	var timer *time.Timer
	if d > 0 {
		timer = time.AfterFunc(d, func() { cancel(errAttemptTimeout) })
	}
	out := req.WithContext(ctx)
	resp, err := base.RoundTrip(out)
	inTime := timer == nil || timer.Stop()
	if err == nil && resp != nil && inTime {
		if resp.Request == out {
			resp.Request = req
		}
		cancelWithBody(resp, cancel)
		return resp, nil
	}
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	cancel(nil)
	switch ended := req.Context().Err(); {
	case !inTime && ended == nil:
		return nil, &timeoutError{d, split, withoutCanceled(err)}
	case err == nil && ended != nil:
		return nil, contextError(req.Context())
	}
	return nil, err
}

// withoutCanceled returns err, or nil if it says that the context was canceled: here heed did that,
// not the caller.
func withoutCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// cancelWithBody has the end or the closing of the body cancel the attempt's context. The body of a
// 101 is the connection itself and stays as it is; its context ends with the request's.
func cancelWithBody(resp *http.Response, cancel context.CancelCauseFunc) {
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
	case resp.Body == nil || resp.Body == http.NoBody:
		cancel(nil)
	default:
		resp.Body = &cancelBody{resp.Body, cancel}
	}
}

type cancelBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *cancelBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel(nil)
	}
	return n, err
}

func (b *cancelBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// abort ends a Read under way, if Base respects its context.
func (b *cancelBody) abort() { b.cancel(nil) }
