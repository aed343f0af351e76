package otelheed_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/otelheed"
	"github.com/heedhttp/heed/testserver"
)

var patient = heed.RetryPolicy{Backoff: every(2 * time.Second)}

// assertTraceparents holds that each request that reached srv names the span of its own
// attempt: one of the spans called name, in their order.
func assertTraceparents(t *testing.T, l *lab, srv *testserver.Server, name string) {
	t.Helper()
	var want, got []string
	for _, span := range l.spans.Started() {
		if sc := span.SpanContext(); span.Name() == name {
			want = append(want, "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-01")
		}
	}
	for _, e := range srv.Log() {
		got = append(got, e.Header.Get("Traceparent"))
	}
	assert.Equal(t, want, got)
}

func TestEachAttemptCarriesItsOwnTraceparent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, script...)
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
		require.NoError(t, err)
		resp, err := l.client(&heed.Transport{Base: srv.Transport(), Retry: patient}).Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assertTraceparents(t, l, srv, "GET")
		assert.Len(t, srv.Log(), 3)
		assert.Empty(t, req.Header, "the caller's request stays as it was")
		assert.Empty(t, resp.Request.Header)
	})
}

// This is why there is otelheed.
func TestOtelhttpByItselfKnowsNothingOfResends(t *testing.T) {
	for name, test := range map[string]struct {
		around func(l *lab, rt http.RoundTripper) http.RoundTripper
		want   string
	}{
		"around heed": {func(l *lab, rt http.RoundTripper) http.RoundTripper {
			return l.otelhttp(&heed.Transport{Base: rt, Retry: patient})
		}, `
HTTP GET client 0s-5s [200]
`},
		"in Base": {func(l *lab, rt http.RoundTripper) http.RoundTripper {
			return &heed.Transport{Base: l.otelhttp(rt), Retry: patient}
		}, `
HTTP GET client 0s-0s [503, 503] Error
HTTP GET client 2s-2s [429, 429] Error
HTTP GET client 5s-5s [200]
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, srv := newLab(t), testserver.New(t, script...)
				call(t, &http.Client{Transport: test.around(l, srv.Transport())}, srv.URL)
				assertTree(t, test.want, l)
			})
		})
	}
}

func TestOtelhttpsAttemptsHaveTheirResendCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, script...)
		call(t, l.clientWith(&heed.Transport{Base: srv.Transport(), Retry: patient}, l.otelhttp), srv.URL)
		assertTree(t, `
heed GET internal 0s-5s [attempts=3, final, 200]
- heed.verdict 0s [attempt=1, again, 503]
- heed.wait 0s [cause=backoff, duration=2]
- heed.verdict 2s [attempt=2, again, 429]
- heed.wait 2s [cause=hint, duration=3, sources=["Retry-After"]]
  HTTP GET client 0s-0s [503, 503] Error
  HTTP GET client 2s-2s [resend_count=1, 429, 429] Error
  HTTP GET client 5s-5s [resend_count=2, 200]
`, l)
		assertTraceparents(t, l, srv, "HTTP GET")
	})
}

func TestOtelhttpAroundHasTheCallBelowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, script...)
		heeding := otelheed.NewTransport(&heed.Transport{Base: srv.Transport(), Retry: patient}, l.options())
		call(t, &http.Client{Transport: l.otelhttp(heeding)}, srv.URL)
		assertTree(t, `
HTTP GET client 0s-5s [200]
  heed GET internal 0s-5s [attempts=3, final, 200]
  - heed.verdict 0s [attempt=1, again, 503]
  - heed.wait 0s [cause=backoff, duration=2]
  - heed.verdict 2s [attempt=2, again, 429]
  - heed.wait 2s [cause=hint, duration=3, sources=["Retry-After"]]
    GET client 0s-0s [503, 503] Error
    GET client 2s-2s [resend_count=1, 429, 429] Error
    GET client 5s-5s [resend_count=2, 200]
`, l)
		assertTraceparents(t, l, srv, "GET")
	})
}

// Each attempt has two spans: that is what Options.Attempts spares.
func TestOtelhttpLeftInBaseIsBelowTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 503})
		call(t, l.client(&heed.Transport{Base: l.otelhttp(srv.Transport()), Retry: patient}), srv.URL)
		assertTree(t, `
heed GET internal 0s-2s [attempts=2, final, 200]
- heed.verdict 0s [attempt=1, again, 503]
- heed.wait 0s [cause=backoff, duration=2]
  GET client 0s-0s [503, 503] Error
    HTTP GET client 0s-0s [503, 503] Error
  GET client 2s-2s [resend_count=1, 200]
    HTTP GET client 2s-2s [200]
`, l)
		assertTraceparents(t, l, srv, "HTTP GET")
	})
}

// otelhttp's span ends with the body, and may outlive the call's.
func TestOtelhttpsSpanEndsWithTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t)
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
		require.NoError(t, err)
		resp, err := l.clientWith(&heed.Transport{Base: srv.Transport()}, l.otelhttp).Do(req)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		assertTree(t, `
heed GET internal 0s-0s [attempts=1, final, 200]
  HTTP GET client 0s-1m0s [200]
`, l)
	})
}

// As for a request that a filter of otelhttp leaves out: there is no span to put the count on.
func TestTheCallsSpanNeverGetsAResendCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 503})
		passing := func(base http.RoundTripper) http.RoundTripper { return base }
		call(t, l.clientWith(&heed.Transport{Base: srv.Transport(), Retry: patient}, passing), srv.URL)
		assertTree(t, `
heed GET internal 0s-2s [attempts=2, final, 200]
- heed.verdict 0s [attempt=1, again, 503]
- heed.wait 0s [cause=backoff, duration=2]
`, l)
	})
}

func TestRequestsThatAttemptsSendsByItselfPassThrough(t *testing.T) {
	l := newLab(t)
	sent := 0
	l.clientWith(&heed.Transport{Base: base(func(req *http.Request) (*http.Response, error) {
		sent++
		return answer(req, 204), nil
	})}, func(base http.RoundTripper) http.RoundTripper {
		resp, err := base.RoundTrip(&http.Request{})
		assert.NoError(t, err)
		assert.Equal(t, 204, resp.StatusCode)
		return base
	})
	assert.Equal(t, 1, sent)
	assert.Empty(t, l.spans.Started())
}

// With a provider that samples nothing, a trace that came from elsewhere goes on.
func TestWithoutSamplingTheCallersTraceIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
		for _, attempts := range []func(*lab) func(http.RoundTripper) http.RoundTripper{
			func(*lab) func(http.RoundTripper) http.RoundTripper { return nil },
			func(l *lab) func(http.RoundTripper) http.RoundTripper { return l.otelhttp },
		} {
			l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 503})
			l.traces = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()),
				sdktrace.WithSpanProcessor(l.spans))
			ctx := trace.ContextWithRemoteSpanContext(t.Context(), parent)
			req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
			require.NoError(t, err)
			resp, err := l.clientWith(&heed.Transport{Base: srv.Transport(), Retry: patient}, attempts(l)).Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Len(t, srv.Log(), 2)
			for _, e := range srv.Log() {
				assert.Regexp(t, "^00-01(00){15}-[0-9a-f]{16}-00$", e.Header.Get("Traceparent"))
			}
			assert.Empty(t, l.spans.Ended())
		}
	})
}

// Without an SDK the span of a remote trace is a struct that cannot be compared.
func TestWithoutAnSDKCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, err := trace.ParseTraceState("vendor=value")
		require.NoError(t, err)
		ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceState: parent}))
		srv := testserver.New(t, script...)
		o := otelheed.Options{TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(),
			Attempts: func(base http.RoundTripper) http.RoundTripper { return base }}
		req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
		require.NoError(t, err)
		resp, err := otelheed.NewTransport(&heed.Transport{Base: srv.Transport()}, o).RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
	})
}
