package retryable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// sendWithin sends req with base. The response's body can be read until timeout has passed
// since then, as with http.Client.Timeout. The time up to its header is heed's to bound.
func sendWithin(timeout time.Duration, base http.RoundTripper, req *http.Request) (*http.Response, error) {
	if timeout <= 0 {
		return base.RoundTrip(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	out, began := req.WithContext(ctx), time.Now()
	resp, err := base.RoundTrip(out)
	if err != nil || resp == nil {
		cancel(nil)
		return resp, err
	}
	if resp.Request == out {
		resp.Request = req
	}
	left := timeout - time.Since(began)
	if left <= 0 { // the caller has set an AttemptTimeout that is longer
		left = timeout
	}
	body := &timedBody{resp.Body, ctx, cancel, time.AfterFunc(left, func() { cancel(errBodyTimeout) })}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		body.timer.Stop() // its body is the connection
	case resp.Body == nil || resp.Body == http.NoBody:
		body.end()
	default:
		resp.Body = body
	}
	return resp, nil
}

// A timedBody can be read until its timer cancels the request.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errBodyTimeout {
		err = errBodyTimeout
	}
	return n, err
}

func (b *timedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *timedBody) end() {
	b.timer.Stop()
	b.cancel(nil)
}

// A timeoutError is a net.Error and a context.DeadlineExceeded, as that of http.Client.Timeout.
type timeoutError struct{ error }

var errBodyTimeout error = &timeoutError{errors.New("retryable: HTTPClient.Timeout exceeded while reading the body")}

func (e *timeoutError) Unwrap() error        { return e.error }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Temporary() bool      { return true }

// asTimeout makes err a timeoutError if it is a timeout.
func asTimeout(err error) error {
	var t interface{ Timeout() bool }
	if errors.As(err, &t) && t.Timeout() {
		return &timeoutError{err}
	}
	return err
}
