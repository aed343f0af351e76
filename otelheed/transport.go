package otelheed

import (
	"net/http"
	"runtime"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/heedhttp/heed"
)

const scope = "github.com/heedhttp/heed/otelheed"

// Options say where a Transport reports to, and what. The zero value suits most programs.
type Options struct {
	// TracerProvider makes the spans. If nil, otel.GetTracerProvider().
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. If nil, otel.GetMeterProvider().
	MeterProvider metric.MeterProvider

	// Propagator writes the span of an attempt into its request. If nil,
	// otel.GetTextMapPropagator(), which writes nothing unless the program sets one.
	Propagator propagation.TextMapPropagator

	// Attempts makes the span of each attempt, instead of otelheed: set it to use otelhttp.
	// It is called once, with a RoundTripper that sends, and returns one around it:
	//
	//	func(base http.RoundTripper) http.RoundTripper { return otelhttp.NewTransport(base) }
	//
	// If nil, otelheed makes a span for each attempt.
	Attempts func(base http.RoundTripper) http.RoundTripper

	// Servers is how many servers the metrics tell apart; the server.address of all others
	// is "_OTHER". If zero or negative, 100.
	Servers int

	// Attributes are on all metrics, to tell Transports to the same server apart.
	Attributes []attribute.KeyValue
}

// A Transport is an http.RoundTripper that sends requests as its heed.Transport does, and reports
// what happens. NewTransport makes one: the zero Transport is not usable. It is safe for
// concurrent use.
type Transport struct {
	heed   *heed.Transport
	base   http.RoundTripper // the user's
	tracer trace.Tracer
}

// NewTransport returns a Transport that sends with the settings of t: all its exported
// fields, its Trace among them. If t is nil, those of the zero heed.Transport.
//
// It neither changes t nor sends through it. It shares t's Board, Budget and Pacer. Where Board
// or Budget is nil, the new Transport has one of its own, as any heed.Transport. So make one
// Transport, and use it for all requests.
//
// If a metric cannot be made, the error goes to otel.Handle, and the others are made.
func NewTransport(t *heed.Transport, o Options) *Transport {
	if t == nil {
		t = new(heed.Transport)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Propagator == nil {
		o.Propagator = otel.GetTextMapPropagator()
	}
	tracer := o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	meter := o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	base, budget := baseOf(t), budgetOf(t)
	m := newMetrics(meter, o)
	out := &Transport{
		heed: &heed.Transport{
			Base: o.around(base, tracer), Retry: t.Retry, Budget: budget, Pacer: t.Pacer,
			Board: t.Board, Key: t.Key, Trace: hooks{m, t.Trace}.trace(),
		},
		base:   base,
		tracer: tracer,
	}
	if r := m.observe(meter, budget); r != nil { // until the Transport is collected
		runtime.AddCleanup(out, func(r metric.Registration) { r.Unregister() }, r)
	}
	return out
}

// around returns base with what makes the spans of attempts.
func (o Options) around(base http.RoundTripper, tracer trace.Tracer) http.RoundTripper {
	if o.Attempts != nil {
		return o.Attempts(resendCounts{base})
	}
	return attemptSpans{base, tracer, o.Propagator}
}

// defaultBase is read once, so that a Transport may become the default.
var defaultBase = http.DefaultTransport

func baseOf(t *heed.Transport) http.RoundTripper {
	if t.Base == nil {
		return defaultBase
	}
	return t.Base
}

// budgetOf returns t's Budget, or a new LocalBudget, whose balance can be read.
func budgetOf(t *heed.Transport) heed.Budget {
	if b, local := t.Budget.(*heed.LocalBudget); t.Budget == nil || local && b == nil {
		return new(heed.LocalBudget)
	}
	return t.Budget
}

// RoundTrip sends req as heed.Transport.RoundTrip does, within a span that is a child of the
// one in req's context. Response.Request is a copy of req whose context has the span. The Trace,
// the Key and the Pacer see the same copy.
func (t *Transport) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	c, ctx := start(t.tracer, req)
	defer func() { c.end(resp, err) }() // after a panic, too
	return t.heed.RoundTrip(req.WithContext(ctx))
}

// CloseIdleConnections closes those of Base, if it can. What Options.Attempts puts around Base
// need not have the method: otelhttp's Transport has none.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}
