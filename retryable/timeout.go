package retryable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// boundedRoundTrip is t's RoundTrip, but the reading of the response's body ends with the
// Timeout that HTTPClient had. It counts from the last attempt's start, as it does there.
func (i *installed) boundedRoundTrip(req *http.Request, c *call) (*http.Response, error) {
	if i.http.Timeout <= 0 {
		return i.t.RoundTrip(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := i.t.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	bindBody(ctx, cancel, resp, i.bodyTime(c.took))
	return resp, nil
}

// bindBody ends ctx, the context of the request, with resp's body, after d at the latest.
func bindBody(ctx context.Context, cancel context.CancelCauseFunc, resp *http.Response, d time.Duration) {
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols: // its body is the connection
	case resp.Body == http.NoBody:
		cancel(nil)
	default:
		timer := time.AfterFunc(d, func() { cancel(errBodyTimeout) })
		resp.Body = &timedBody{resp.Body, ctx, cancel, timer}
	}
}

// bodyTime is what is left of the Timeout. It is all of it if an AttemptTimeout of the
// caller's has let the attempt take longer.
func (i *installed) bodyTime(took time.Duration) time.Duration {
	if took >= i.http.Timeout {
		return i.http.Timeout
	}
	return i.http.Timeout - took
}

// A timedBody is a body that can be read for some time.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context // of its request; the end of the time ends it
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.end()
	case err != nil && errors.Is(context.Cause(b.ctx), errBodyTimeout):
		return n, errBodyTimeout
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

// errBodyTimeout is a net.Error, and a context.DeadlineExceeded, as http.Client's is.
var errBodyTimeout error = bodyTimeout{}

type bodyTimeout struct{}

func (bodyTimeout) Error() string {
	return "retryable: HTTPClient.Timeout exceeded while reading the body"
}
func (bodyTimeout) Timeout() bool   { return true }
func (bodyTimeout) Temporary() bool { return true }
func (bodyTimeout) Unwrap() error   { return context.DeadlineExceeded }
