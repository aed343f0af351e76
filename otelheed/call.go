package otelheed

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

// A call is one RoundTrip of a Transport.
type call struct {
	req     *http.Request // the caller's
	span    trace.Span
	before  int          // requests that were sent before the redirect that req follows
	sent    atomic.Int64 // requests of this call
	sending atomic.Bool  // whether Base has a request of it
	verdict heed.Verdict // on the last attempt that ended
}

type callKey struct{}

// callOf returns the innermost call that ctx belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// start begins the span of a call. The context is for the request to send.
func start(tracer trace.Tracer, req *http.Request) (*call, context.Context) {
	c := &call{req: req, before: sentBefore(req), verdict: heed.Again}
	ctx, span := tracer.Start(req.Context(), "heed "+spanName(req), trace.WithAttributes(requestAttributes(req)...))
	c.span = span
	ctx = context.WithValue(ctx, callKey{}, c)
	return c, heed.WithTrace(ctx, &heed.Trace{Degraded: c.degraded})
}

// sentBefore returns how many requests were sent before the redirect that req follows.
func sentBefore(req *http.Request) int {
	if req.Response == nil || req.Response.Request == nil {
		return 0
	}
	if c := callOf(req.Response.Request.Context()); c != nil {
		return c.before + int(c.sent.Load())
	}
	return 0
}

// countSend counts a request that is sent now. It returns how many were sent before it.
func (c *call) countSend() int { return c.before + int(c.sent.Add(1)) - 1 }

// send has base send req.
func (c *call) send(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	c.sending.Store(true)
	defer c.sending.Store(false)
	return base.RoundTrip(req)
}

func (c *call) end(resp *http.Response, err error) {
	c.span.SetAttributes(attemptsKey.Int64(c.sent.Load()))
	if c.verdict != heed.Again { // or else the call ended before the next attempt
		c.span.SetAttributes(verdictKey.String(c.verdict.String()))
	}
	c.finish(c.span, resp, err)
}

// finish ends a span of the call: its own, or that of an attempt. A deferred span.End would
// record the text of a panic; called from here, End sees none.
func (c *call) finish(span trace.Span, resp *http.Response, err error) {
	switch {
	case err == nil && resp != nil:
		setResponse(span, resp)
	case c.req.Context().Err() == context.Canceled:
		// The caller gave up, which the semantic conventions call no error.
	case err != nil:
		setError(span, errorType(err))
	default: // a panic
		setError(span, semconv.ErrorTypeOther)
	}
	span.End()
}

func setResponse(span trace.Span, resp *http.Response) {
	span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
	if resp.StatusCode < 100 || resp.StatusCode >= 400 {
		setError(span, statusError(resp.StatusCode))
	}
}

// setError gives no description: the text of an error may hold a secret.
func setError(span trace.Span, errorType attribute.KeyValue) {
	span.SetAttributes(errorType)
	span.SetStatus(codes.Error, "")
}

func (c *call) event(name string, start time.Time, attrs ...attribute.KeyValue) {
	c.span.AddEvent(name, trace.WithTimestamp(start), trace.WithAttributes(attrs...))
}

func (c *call) waits(cause heed.Cause, start time.Time, wait time.Duration, sources []string) {
	attrs := []attribute.KeyValue{causeKey.String(cause.String()), waitKey.Float64(wait.Seconds())}
	if len(sources) > 0 {
		attrs = append(attrs, sourcesKey.StringSlice(sources))
	}
	c.event("heed.wait", start, attrs...)
}

func (c *call) decided(a heed.Attempt, v heed.Verdict, wait time.Duration) {
	c.verdict = v
	if v == heed.Final || !c.span.IsRecording() {
		return
	}
	now := time.Now()
	attrs := []attribute.KeyValue{attemptKey.Int(a.Number), verdictKey.String(v.String()), outcome(a)}
	if v != heed.Again && wait > 0 {
		attrs = append(attrs, requiredKey.Float64(wait.Seconds()))
	}
	c.event("heed.verdict", now, attrs...)
	if a.Cause != 0 && a.Cause != heed.CauseOutage { // waited tells that one: nobody knows how long it takes
		c.waits(a.Cause, now, wait, sourcesOf(a, wait))
	}
}

// sourcesOf returns the names of the response's fields that ask for the wait, or nil if it is
// not they that do.
func sourcesOf(a heed.Attempt, wait time.Duration) []string {
	if a.Cause != heed.CauseHint || a.Response == nil {
		return nil
	}
	if asked, ok := heed.RetryAfter(a.Response, time.Time{}); !ok || asked != wait {
		return nil // RetryPolicy.Hint found it elsewhere
	}
	return ratelimit.Sources(a.Response.StatusCode, a.Response.Header, time.Time{})
}

func (c *call) refused(err *heed.OverdueError) {
	attrs := []attribute.KeyValue{causeKey.String(err.Cause.String())}
	if err.Wait > 0 {
		attrs = append(attrs, requiredKey.Float64(err.Wait.Seconds()))
	}
	if err.Limit != "" {
		attrs = append(attrs, limitKey.String(err.Limit))
	}
	if err.Err != nil {
		attrs = append(attrs, errorType(err.Err))
	}
	c.event("heed.refused", time.Now(), attrs...)
}

func (c *call) degraded(err error) {
	if c.sending.Load() {
		return // It is the Board of a heed.Transport in Base, which has the same context.
	}
	c.event("heed.degraded", time.Now(), errorType(err))
}

// hooks are the Trace of a Transport. They tell next as well, if there is one.
type hooks struct {
	metrics *metrics
	next    *heed.Trace
}

func (h hooks) trace() *heed.Trace {
	if h.next == nil {
		h.next = new(heed.Trace)
	}
	return &heed.Trace{
		Paced: h.paced, Cooled: h.cooled, Waited: h.waited, Decided: h.decided, Refused: h.refused, Degraded: h.degraded,
	}
}

// shortestWait is the least wait for a Pacer that is one: less is the time that asking it takes.
const shortestWait = time.Millisecond

func (h hooks) paced(req *http.Request, wait time.Duration) {
	if wait >= shortestWait {
		callOf(req.Context()).waits(heed.CausePace, time.Now().Add(-wait), wait, nil)
	}
	if h.next.Paced != nil {
		h.next.Paced(req, wait)
	}
}

func (h hooks) cooled(req *http.Request, key string, wait time.Duration) {
	callOf(req.Context()).waits(heed.CauseCoolDown, time.Now(), wait, nil)
	if h.next.Cooled != nil {
		h.next.Cooled(req, key, wait)
	}
}

func (h hooks) waited(req *http.Request, cause heed.Cause, took time.Duration) {
	if cause == heed.CauseOutage {
		callOf(req.Context()).waits(cause, time.Now().Add(-took), took, nil)
	}
	h.metrics.waited(req, cause, took)
	if h.next.Waited != nil {
		h.next.Waited(req, cause, took)
	}
}

func (h hooks) decided(a heed.Attempt, v heed.Verdict, wait time.Duration) {
	callOf(a.Request.Context()).decided(a, v, wait)
	h.metrics.attempted(a, v)
	if h.next.Decided != nil {
		h.next.Decided(a, v, wait)
	}
}

func (h hooks) refused(req *http.Request, err *heed.OverdueError) {
	callOf(req.Context()).refused(err)
	h.metrics.refused(req, err)
	if h.next.Refused != nil {
		h.next.Refused(req, err)
	}
}

func (h hooks) degraded(err error) {
	h.metrics.degraded()
	if h.next.Degraded != nil {
		h.next.Degraded(err)
	}
}
