package heed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// roundTripWithin bounds the time until the response's header is there. The
// context of the attempt lives on until the body is closed or has ended: ended
// with the header, it would cut the body off.
func roundTripWithin(base http.RoundTripper, req *http.Request, d time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(d, func() { cancel(errAttemptTimeout) })
	out := req.WithContext(ctx)
	resp, err := base.RoundTrip(out)
	inTime := timer.Stop()
	if err == nil && resp != nil && inTime {
		if resp.Request == out {
			resp.Request = req
		}
		bind(resp, cancel)
		return resp, nil
	}
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	cancel(nil)
	switch ended := req.Context().Err(); {
	case !inTime && ended == nil:
		return nil, &timeoutError{after: d, err: apartFromCancel(err)}
	case err == nil && ended != nil:
		return nil, errorOf(req.Context())
	}
	return nil, err
}

// apartFromCancel drops what Base says of the context that ran out: the caller
// has cancelled nothing.
func apartFromCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// bind ends the attempt's context with the body. The body of a 101 is the
// connection, and stays what it is; its context ends with the request's.
func bind(resp *http.Response, cancel context.CancelCauseFunc) {
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
	case resp.Body == nil || resp.Body == http.NoBody:
		cancel(nil)
	default:
		resp.Body = &boundBody{resp.Body, cancel}
	}
}

type boundBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel(nil)
	}
	return n, err
}

func (b *boundBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
