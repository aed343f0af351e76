package heed

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// ResendCount returns how often the request with this context was sent before: 0 for the first
// attempt, 1 for the second. Call it in a RoundTripper in Base, with the context of the request
// that it got:
//
//	span.SetAttributes(semconv.HTTPRequestResendCount(heed.ResendCount(req.Context())))
//
// OpenTelemetry calls this http.request.resend_count.
func ResendCount(ctx context.Context) int {
	n, _ := ctx.Value(resendKey{}).(int)
	return n
}

// RandomIdempotencyKey returns 122 random bits in the form of a UUID (RFC 9562 section 5.4). Use it
// as RetryPolicy.IdempotencyKey.
func RandomIdempotencyKey(*http.Request) string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// outgoing makes the requests that Base gets.
type outgoing struct {
	policy     *RetryPolicy
	key        string       // the Idempotency-Key to add, or ""
	copy       *requestCopy // the last attempt's
	source     *source      // the body, if it has no GetBody
	handedOver bool         // Base got the request, and must close its body
}

// A requestCopy is a copy of the caller's request and its context, in one allocation. All retries
// use the same copy if they have no body and identical headers.
type requestCopy struct {
	context.Context
	attempt atomic.Int64
	request http.Request
}

type resendKey struct{}

func (c *requestCopy) Value(key any) any {
	if key == (resendKey{}) {
		return int(c.attempt.Load()) - 1
	}
	return c.Context.Value(key)
}

// next returns the request for an attempt. The first attempt sends the caller's own, unless heed
// has to keep its body or add a field. timeLeft is for RetryPolicy.TellServer.
func (o *outgoing) next(req *http.Request, attempt int, timeLeft time.Duration) (*http.Request, error) {
	body, rewinds, addsFields := hasBody(req), o.policy.canRewind(req), o.key != "" || o.policy.TellServer
	unchanged := !body || !o.handedOver && (rewinds || o.policy.maxAttempts() == 1)
	if unchanged && !o.handedOver && !addsFields {
		return req, nil
	}
	if o.copy == nil || body || addsFields {
		// No Clone: it would lack the trailers that the caller sets while the body is read.
		o.copy = &requestCopy{Context: req.Context()}
		o.copy.request = *req.WithContext(o.copy)
	}
	o.copy.attempt.Store(int64(attempt))
	out := &o.copy.request
	if addsFields {
		o.setHeader(out, attempt, timeLeft)
	}
	switch {
	case unchanged:
		return out, nil
	case rewinds:
		var err error
		out.Body, err = req.GetBody()
		return out, err
	}
	if o.source == nil {
		o.source = &source{body: req.Body, keep: o.policy.MaxBodyBuffer}
	}
	out.Body = o.source.next()
	return out, nil
}

// setHeader adds the fields that the policy asks for. It copies the header, because the attempt
// before may still be sending its own.
func (o *outgoing) setHeader(out *http.Request, attempt int, timeLeft time.Duration) {
	header := maps.Clone(out.Header)
	if header == nil {
		return // Base returns the error for that
	}
	if o.key != "" {
		header["Idempotency-Key"] = []string{o.key}
	}
	if o.policy.TellServer {
		ratelimit.SetCall(header, ratelimit.Call{Attempt: attempt, TimeLeft: timeLeft})
	}
	out.Header = header
}

// replayable reports whether the body can be sent again.
func (o *outgoing) replayable(req *http.Request) bool {
	switch {
	case !hasBody(req), o.policy.canRewind(req):
		return true
	case o.source != nil:
		return o.source.replayable()
	}
	return false
}

// mayResend reports before an attempt whether a failed request could be sent again.
func (o *outgoing) mayResend(req *http.Request) bool {
	return (o.key != "" || idempotent(req)) && (!hasBody(req) || o.policy.canRewind(req) ||
		0 < req.ContentLength && req.ContentLength <= o.policy.MaxBodyBuffer)
}

// takeBack takes the body back from the attempt that is over. It returns false if the body cannot
// be sent again.
func (o *outgoing) takeBack() bool { return o.source == nil || o.source.takeBack() }

// finish tells that no attempt follows.
func (o *outgoing) finish() {
	if o.source != nil {
		o.source.finish()
	}
}
