package heed

import (
	"context"
	"net/http"
	"sync/atomic"
)

// ResendCount reports which repetition of a request ctx belongs to: 0 for the
// first attempt, 1 for the one after it. It is OpenTelemetry's
// http.request.resend_count, for instrumentation in Base. ctx is that of the
// request which Base was given.
func ResendCount(ctx context.Context) int {
	n, _ := ctx.Value(resendKey{}).(int)
	return n
}

type resendKey struct{}

// A resend is a copy of the caller's request and its context, in one piece of
// memory. Without a body, and
// if each says the same, one serves all repetitions.
type resend struct {
	context.Context
	count   atomic.Int64
	request http.Request
}

func (r *resend) Value(key any) any {
	if key == (resendKey{}) {
		return int(r.count.Load())
	}
	return r.Context.Value(key)
}

// copied is a shallow copy of the caller's request, an anew one if it is for one
// attempt only: not a Clone, in which the trailers that he sets while the body is
// read would be missing.
func (c *call) copied(anew bool) *http.Request {
	r := c.copy
	if r == nil || anew {
		r = &resend{Context: c.req.Context()}
		r.request = *c.req.WithContext(r)
		c.copy = r
	}
	r.count.Store(int64(c.number))
	return &r.request
}
