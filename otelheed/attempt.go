package otelheed

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// attemptSpans makes a span for each request that it gives to base.
type attemptSpans struct {
	base       http.RoundTripper
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

func (a attemptSpans) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	attrs := requestAttributes(req)
	c := callOf(req.Context())
	if n := c.countSend(); n > 0 {
		attrs = append(attrs, semconv.HTTPRequestResendCount(n))
	}
	kind := trace.WithSpanKind(trace.SpanKindClient)
	ctx, span := a.tracer.Start(req.Context(), spanName(req), kind, trace.WithAttributes(attrs...))
	defer func() {
		reported := err
		if err != nil && ctx.Err() != nil {
			// AttemptTimeout or a deadline: finish knows a call that was cancelled.
			reported = context.DeadlineExceeded
		}
		c.finish(span, resp, reported)
	}()
	out := req.WithContext(ctx) // not a Clone, which has trailers of its own
	if out.Header != nil {      // Base reports that it is nil
		out.Header = out.Header.Clone()
		a.propagator.Inject(ctx, propagation.HeaderCarrier(out.Header))
	}
	resp, err = c.send(a.base, out)
	if resp != nil && resp.Request == out {
		resp.Request = req
	}
	return resp, err
}

// resendCounts adds http.request.resend_count to the span that another instrumentation has made
// of the attempt.
type resendCounts struct{ base http.RoundTripper }

func (r resendCounts) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := callOf(ctx)
	if c == nil { // a request that is not of a Transport
		return r.base.RoundTrip(req)
	}
	n, span := c.countSend(), trace.SpanFromContext(ctx)
	made := span.SpanContext().SpanID() != c.span.SpanContext().SpanID()
	if n > 0 && made {
		span.SetAttributes(semconv.HTTPRequestResendCount(n))
	}
	return c.send(r.base, req)
}
