package heed

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/cool"
	"github.com/heedhttp/heed/ratelimit"
)

// A Trace has hooks that a Transport calls, for logs, metrics and spans. LogTrace makes one that
// logs. To count attempts:
//
//	transport.Trace = &heed.Trace{
//		Decided: func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
//			attempts.WithLabelValues(v.String()).Inc()
//		},
//	}
//
// Any hook may be nil. Hooks are called in the request's goroutine; they must be safe for
// concurrent use and should not block.
type Trace struct {
	// Paced is called when the Pacer has admitted req, after wait.
	Paced func(req *http.Request, wait time.Duration)
	// Cooled is called when req begins to wait for the cool-down of key. If Decided has already
	// reported a wait, this wait is only what comes on top of that.
	Cooled func(req *http.Request, key string, wait time.Duration)
	// Decided is called after each attempt. wait is how long the next attempt waits, or would have
	// had to wait.
	Decided func(a Attempt, v Verdict, wait time.Duration)
	// Waited is called when a wait is over, because req is sent or given up: once for each cause,
	// with the time it took. These times add up to the whole wait. Jitter, and the line after a
	// cool-down or an outage, count for the cause before them. Waits for the Pacer below a millisecond
	// are not reported.
	Waited func(req *http.Request, cause Cause, took time.Duration)
	// Refused is called when req is not sent, or not sent again, because it would have to wait too
	// long, or has waited too long for a host that is down. Another error of the Pacer, such as that
	// of a full queue, is in err.Err.
	Refused func(req *http.Request, err *OverdueError)
	// Degraded is called when a Board, Budget or Pacer cannot reach its store and works without it, and
	// once when a request's body does not name the limit that the vendor would charge it to.
	Degraded func(err error)
}

// WithTrace returns a context whose requests also call trace, after the Transport's own Trace and
// those that ctx already has.
func WithTrace(ctx context.Context, trace *Trace) context.Context {
	o := overridesOf(ctx)
	if trace != nil {
		o.traces = append(o.traces[:len(o.traces):len(o.traces)], trace)
	}
	return context.WithValue(ctx, overridesKey{}, &o)
}

// overrides are what a context changes for its requests.
type overrides struct {
	retry  func(RetryPolicy) RetryPolicy
	traces []*Trace
	drain  context.Context // from WithDrain
}

type overridesKey struct{}

func overridesOf(ctx context.Context) overrides {
	if o, ok := ctx.Value(overridesKey{}).(*overrides); ok {
		return *o
	}
	return overrides{}
}

// allTraces calls f for the Transport's Trace and those of the context.
func (c *call) allTraces(f func(*Trace)) {
	if c.t.Trace != nil {
		f(c.t.Trace)
	}
	for _, trace := range c.traces {
		f(trace)
	}
}

func (c *call) traceDecided(v Verdict, wait time.Duration) {
	if c.t.Trace == nil && c.traces == nil {
		return
	}
	a := c.last
	c.allTraces(func(trace *Trace) {
		if trace.Decided != nil {
			trace.Decided(a, v, wait)
		}
	})
}

// A pendingWait is the wait before the next attempt, as far as it is known.
type pendingWait struct {
	cause    Cause         // what the verdict on the last attempt named; 0 if it named none
	required time.Duration // how long that takes
	cooled   bool          // a cool-down prolongs the wait, or is all of it
	paced    time.Duration // time spent in the Pacer
	held     time.Duration // time spent waiting for a host that is down

	tracedUntil    time.Duration  // the end of the wait, as Decided or Cooled reported it
	tracedCoolDown *cool.CoolDown // the last cool-down that was reported
	tracedRound    int            // and its round
}

// split divides the time of the wait among the verdict's cause, an outage, a cool-down and the Pacer. If a
// cool-down prolonged the wait, the cause gets the time that it required, and the cool-down the rest.
func (w pendingWait) split(took time.Duration) [4]Wait {
	rest := max(0, took-w.paced-w.held)
	own, coolDown := rest, time.Duration(0)
	switch {
	case w.cooled:
		own = min(w.required, rest)
		coolDown = rest - own
	case w.cause == 0:
		own = 0 // nothing was waited for: the rest is what draining a response and the like took
	}
	switch w.cause { // report each once
	case CauseCoolDown:
		own, coolDown = 0, own+coolDown
	case CauseOutage:
		own, w.held = 0, own+w.held
	}
	return [...]Wait{{w.cause, own}, {CauseOutage, w.held}, {CauseCoolDown, coolDown}, {CausePace, w.paced}}
}

// traceWaited reports the wait before an attempt, which ends now.
func (c *call) traceWaited(now time.Duration) {
	w := c.pending
	c.pending = pendingWait{}
	if c.t.Trace == nil && c.traces == nil {
		return
	}
	began := c.start
	if c.out.handedOver {
		began = c.ended
	}
	parts, req := w.split(now-began), c.req
	c.allTraces(func(trace *Trace) {
		if trace.Waited == nil {
			return
		}
		for _, part := range parts {
			if part.For > 0 && (part.Cause != CausePace || part.For >= minPaced) {
				trace.Waited(req, part.Cause, part.For)
			}
		}
	})
}

// minPaced is what asking a Pacer may take without any waiting.
const minPaced = time.Millisecond

// traceRefused reports what heed refused, but not what the caller cancelled.
func (c *call) traceRefused(err *OverdueError) {
	if c.t.Trace == nil && c.traces == nil || cancelled(c.req) != nil {
		return
	}
	err.again = c.out.handedOver
	c.allTraces(func(trace *Trace) {
		if trace.Refused != nil {
			trace.Refused(c.req, err)
		}
	})
}

func (c *call) traceDegraded(err error) {
	c.allTraces(func(trace *Trace) {
		if trace.Degraded != nil {
			trace.Degraded(err)
		}
	})
}

// LogTrace returns a Trace that logs to l:
//
//	transport := &heed.Transport{Trace: heed.LogTrace(slog.Default())}
//
// The levels are Warn for a retry, for giving up and for a request that is not sent; Info after a
// wait of a second or more for a cool-down, the Pacer or a host that was down, with its cause and
// how long it took; Debug when a wait for a cool-down or the Pacer begins; and Error if a store
// cannot be reached. If l is nil, slog.Default() is called for each record.
//
// An attempt with the Verdict Final is not logged, such as a success or a 404. The exception is one
// that Worthwhile would retry if the request were idempotent: it is logged with the cause "not
// idempotent", whatever a RetryPolicy.If says.
//
// LogTrace never logs a path, query string, user info or header value: any of them may hold a
// secret.
func LogTrace(l *slog.Logger) *Trace {
	t := logTrace{l}
	return &Trace{Paced: t.paced, Cooled: t.cooled, Decided: t.decided, Waited: t.waited, Refused: t.refused,
		Degraded: t.degraded}
}

type logTrace struct{ logger *slog.Logger }

func (t logTrace) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	l := t.logger
	if l == nil {
		l = slog.Default()
	}
	l.LogAttrs(ctx, level, msg, attrs...)
}

func (t logTrace) paced(req *http.Request, wait time.Duration) {
	if wait >= minPaced {
		t.log(req.Context(), slog.LevelDebug, "request paced", method(req), host(req), waiting(wait))
	}
}

func (t logTrace) cooled(req *http.Request, _ string, wait time.Duration) {
	t.log(req.Context(), slog.LevelDebug, "request waits for a cool-down", method(req), host(req), waiting(wait))
}

func (t logTrace) waited(req *http.Request, cause Cause, took time.Duration) {
	retry := cause == CauseHint || cause == CauseBackoff // decided has told it
	if took >= longWait && !retry {
		t.log(req.Context(), slog.LevelInfo, "request waited", method(req), host(req),
			slog.String("cause", cause.String()), waiting(took))
	}
}

// longWait is what a reader of the log wants to know of.
const longWait = time.Second

func (t logTrace) decided(a Attempt, v Verdict, wait time.Duration) {
	msg, cause := "request not retried", ""
	switch v {
	case Final:
		if !a.onlyIdempotent() {
			return
		}
		cause = "not idempotent"
	case Again:
		msg = "request will be retried"
	}
	if a.Cause != 0 {
		cause = a.Cause.String()
	}
	attrs := []slog.Attr{method(a.Request), host(a.Request), outcome(a),
		slog.String("verdict", v.String()), slog.Int("attempt", a.Number), slog.Int("max", int(a.maxAttempts)),
		waiting(wait)}
	if a.Response != nil && a.Response.StatusCode < 400 && a.meaning != ratelimit.Unsaid {
		attrs = append(attrs, slog.String("meaning", a.meaning.String())) // in the body
	}
	if a.limit != "" {
		attrs = append(attrs, slog.String("limit", a.limit))
	}
	if cause != "" {
		attrs = append(attrs, slog.String("cause", cause))
	}
	t.log(a.Request.Context(), slog.LevelWarn, msg, attrs...)
}

func (t logTrace) refused(req *http.Request, err *OverdueError) {
	attrs := []slog.Attr{method(req), host(req), slog.String("cause", err.Cause.String()), waiting(err.Wait)}
	if err.Limit != "" {
		attrs = append(attrs, slog.String("limit", err.Limit))
	}
	if err.Err != nil {
		attrs = append(attrs, slog.String("error", errorText(err.Err)))
	}
	msg := "request not sent"
	if err.again {
		msg = "request not sent again"
	}
	t.log(req.Context(), slog.LevelWarn, msg, attrs...)
}

func waiting(d time.Duration) slog.Attr { return slog.Duration("wait", rounded(d)) }

func (t logTrace) degraded(err error) {
	t.log(context.Background(), slog.LevelError, "shared store unavailable",
		slog.String("error", errorText(err)))
}

func method(req *http.Request) slog.Attr {
	if req.Method == "" {
		return slog.String("method", http.MethodGet)
	}
	return slog.String("method", req.Method)
}

func host(req *http.Request) slog.Attr { return slog.String("host", req.URL.Host) }

func outcome(a Attempt) slog.Attr {
	if a.Err != nil {
		return slog.String("error", errorText(a.Err))
	}
	return slog.Int("status", a.Response.StatusCode)
}
