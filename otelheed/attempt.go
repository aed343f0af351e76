package otelheed

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// attempts makes a span for each request that it gives to base.
type attempts struct {
	base       http.RoundTripper
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

func (a attempts) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	attrs := requestAttributes(req)
	c := callOf(req.Context())
	if n := c.resends(); n > 0 {
		attrs = append(attrs, semconv.HTTPRequestResendCount(n))
	}
	kind := trace.WithSpanKind(trace.SpanKindClient)
	ctx, span := a.tracer.Start(req.Context(), spanName(req), kind, trace.WithAttributes(attrs...))
	defer func() {
		reported := err
		if err != nil && ctx.Err() != nil { // if it is not the caller's doing, it is AttemptTimeout's
			reported = context.DeadlineExceeded
		}
		c.finish(span, resp, reported)
	}()
	out := req.WithContext(ctx) // not a Clone, which has trailers of its own
	if out.Header != nil {      // or else Base knows what to say
		out.Header = out.Header.Clone()
		a.propagator.Inject(ctx, propagation.HeaderCarrier(out.Header))
	}
	resp, err = a.base.RoundTrip(out)
	if resp != nil && resp.Request == out {
		resp.Request = req
	}
	return resp, err
}

// resends adds http.request.resend_count to a span that another instrumentation has made of
// the attempt.
type resends struct{ base http.RoundTripper }

func (r resends) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := callOf(ctx)
	if c == nil { // a request that is not of a Transport
		return r.base.RoundTrip(req)
	}
	n, span := c.resends(), trace.SpanFromContext(ctx)
	if n > 0 && span.SpanContext().SpanID() != c.span.SpanContext().SpanID() {
		span.SetAttributes(semconv.HTTPRequestResendCount(n))
	}
	return r.base.RoundTrip(req)
}
