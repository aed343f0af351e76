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

// ResendCount reports which repetition of a request ctx belongs to: 0 for the
// first attempt, 1 for the one after it. It is OpenTelemetry's
// http.request.resend_count, for instrumentation in Base. ctx is that of the
// request which Base was given.
func ResendCount(ctx context.Context) int {
	n, _ := ctx.Value(resendKey{}).(int)
	return n
}

// RandomIdempotencyKey returns 122 random bits in the form of a UUID (RFC 9562,
// section 5.4), for RetryPolicy.IdempotencyKey.
func RandomIdempotencyKey(*http.Request) string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// An outgoing makes the requests that Base is given of the caller's one.
type outgoing struct {
	policy *RetryPolicy
	key    string       // Idempotency-Key of the call's own, if it has one
	copy   *requestCopy // of the last attempt
	source *source      // the body, if it has no GetBody
	given  bool         // Base has had the body, whose duty it is to close it
}

// A requestCopy is a copy of the caller's request and its context, in one piece of
// memory. Without a body, and if each says the same, one serves all repetitions.
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

// next returns the request of an attempt. It is the caller's own for the first one, unless
// its body has to be watched or it says more than that: timeLeft is for
// RetryPolicy.TellServer.
func (o *outgoing) next(req *http.Request, attempt int, timeLeft time.Duration) (*http.Request, error) {
	body, rewinds, says := hasBody(req), o.policy.rewinds(req), o.key != "" || o.policy.TellServer
	asItIs := !body || !o.given && (rewinds || o.policy.maxAttempts() == 1)
	if asItIs && !o.given && !says {
		return req, nil
	}
	if o.copy == nil || body || says {
		// Not a Clone, in which the trailers that the caller sets while the body is read
		// would be missing.
		o.copy = &requestCopy{Context: req.Context()}
		o.copy.request = *req.WithContext(o.copy)
	}
	o.copy.attempt.Store(int64(attempt))
	out := &o.copy.request
	if says {
		o.say(out, attempt, timeLeft)
	}
	switch {
	case asItIs:
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

// say writes what the attempts of the call say and the caller's request does not. The
// header is this attempt's alone: the one before may still be being sent.
func (o *outgoing) say(out *http.Request, attempt int, timeLeft time.Duration) {
	header := maps.Clone(out.Header)
	if header == nil {
		return // Base knows what to say
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
	case !hasBody(req), o.policy.rewinds(req):
		return true
	case o.source != nil:
		return o.source.replayable()
	}
	return false
}

// takeBack ends the attempt's hold of the body, and reports whether it could.
func (o *outgoing) takeBack() bool { return o.source == nil || o.source.takeBack() }

// finish says that nothing else is sent.
func (o *outgoing) finish() {
	if o.source != nil {
		o.source.finish()
	}
}
