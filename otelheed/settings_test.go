package otelheed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/otelheed"
	"github.com/heedhttp/heed/testserver"
)

func TestAllSettingsAreTakenOverAndNoneIsChanged(t *testing.T) {
	key := func(*http.Request) string { return "key" }
	given := &heed.Transport{
		Base: base(nil), Retry: heed.RetryPolicy{MaxAttempts: 7}, Budget: heed.Unlimited, Pacer: interval(1),
		Board: heed.NoBoard, Key: key, Trace: &heed.Trace{},
	}
	trace := given.Trace
	got := otelheed.Settings(otelheed.NewTransport(given, newLab(t).options()))
	for i, field := range reflect.VisibleFields(reflect.TypeFor[heed.Transport]()) {
		if !field.IsExported() {
			continue
		}
		before, after := reflect.ValueOf(given).Elem().Field(i), reflect.ValueOf(got).Elem().Field(i)
		require.False(t, before.IsZero(), "heed.Transport has a field %s that this test does not set", field.Name)
		switch field.Name {
		case "Base", "Trace":
			assert.False(t, after.IsZero(), field.Name)
		case "Key":
			assert.Equal(t, before.Pointer(), after.Pointer())
		default:
			assert.Equal(t, before.Interface(), after.Interface(), field.Name)
		}
	}
	assert.Same(t, trace, given.Trace)
	assert.Equal(t, &heed.Trace{}, given.Trace)
	assert.IsType(t, base(nil), given.Base)
}

func TestTheZeroTransportNeedsNoBaseAndNoBudget(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Traceparent") != "")
	}))
	defer srv.Close()
	var nobody *heed.LocalBudget
	for _, given := range []*heed.Transport{nil, {}, {Budget: nobody}} {
		l := newLab(t)
		client := l.client(given)
		resp, err := client.Get(srv.URL)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, "true", string(body))
		assert.Contains(t, l.metrics(), "\nbudget.balance {retry}", "its own budget is seen")
		client.CloseIdleConnections()
	}
}

// closer counts how often its idle connections were closed.
type closer struct {
	http.RoundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestCloseIdleConnectionsReachesBaseThroughOtelhttp(t *testing.T) {
	l, b := newLab(t), new(closer)
	l.client(&heed.Transport{Base: b}).CloseIdleConnections()
	l.clientWith(&heed.Transport{Base: b}, l.otelhttp).CloseIdleConnections() // which has no such method
	assert.Equal(t, 2, b.closed)
	l.client(&heed.Transport{Base: base(nil)}).CloseIdleConnections() // nor has this
}

// gone is a Board without its store.
type gone struct{}

func (gone) Post(context.Context, string, time.Duration, time.Duration) error { return nil }

func (gone) Read(context.Context, string) (time.Duration, time.Duration, error) {
	return 0, 0, errors.New("err-s3cr3t")
}

func TestALostStoreIsOnTheSpanAndTheMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t)
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Board: gone{}}), srv.URL)
		assertTree(t, `
heed GET internal 0s-0s [attempts=1, final, 200]
- heed.degraded 0s [*errors.errorString]
  GET client 0s-0s [200]
`, l)
		assert.Contains(t, l.metrics(), "\nstore.failures {failure} [] 1\n")
	})
}

func TestTheTransportsOwnTraceIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		tell := func(what string) { told = append(told, what) }
		trace := &heed.Trace{
			Paced:  func(*http.Request, time.Duration) { tell("paced") },
			Cooled: func(*http.Request, string, time.Duration) { tell("cooled") },
			Decided: func(a heed.Attempt, _ heed.Verdict, _ time.Duration) {
				tell("decided")
				span := oteltrace.SpanFromContext(a.Request.Context()).(sdktrace.ReadOnlySpan)
				assert.Equal(t, "heed GET", span.Name(), "so a log can tell the trace")
			},
			Refused:  func(*http.Request, *heed.OverdueError) { tell("refused") },
			Degraded: func(error) { tell("degraded") },
		}
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		client := l.client(&heed.Transport{Base: srv.Transport(), Trace: trace,
			Pacer: interval(time.Second), Retry: heed.RetryPolicy{MaxAttempts: 1}})
		call(t, client, srv.URL) // is told to wait
		call(t, client, srv.URL) // waits
		_, err := l.client(&heed.Transport{Base: srv.Transport(), Trace: trace, Pacer: full{}}).Get(srv.URL)
		require.ErrorIs(t, err, errFull)
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Trace: trace, Board: gone{}}), srv.URL)
		assert.Equal(t, []string{"paced", "decided", "cooled", "paced", "decided", "refused", "degraded", "decided"}, told)
		assert.Regexp(t, `\n- heed.refused \d+s \[cause=pace, \*errors.errorString\]\n`, l.tree())
	})
}

var errFull = errors.New("err-s3cr3t")

// full is a Pacer that refuses all.
type full struct{}

func (full) Wait(*http.Request) error { return errFull }
func (full) Observe(heed.Attempt)     {}

func TestNothingGlobalIsUsedUnlessNothingElseIsGiven(t *testing.T) {
	global, given := newLab(t), newLab(t)
	otel.SetTracerProvider(global.traces)
	otel.SetMeterProvider(global.meters)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(nooptrace.NewTracerProvider())
		otel.SetMeterProvider(noop.NewMeterProvider())
		otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator())
	})
	traced := 0
	heeding := &heed.Transport{Base: base(func(req *http.Request) (*http.Response, error) {
		if req.Header.Get("Traceparent") != "" {
			traced++
		}
		return answer(req, 204), nil
	})}
	call(t, given.client(heeding), "http://example.com")
	assert.Equal(t, 1, traced)
	assert.Len(t, given.spans.Ended(), 2)
	assert.Empty(t, global.spans.Started())
	assert.Equal(t, "\n\n", global.metrics())
	call(t, &http.Client{Transport: otelheed.NewTransport(heeding, otelheed.Options{})}, "http://example.com")
	assert.Equal(t, 2, traced)
	assert.Len(t, global.spans.Ended(), 2)
	assert.Contains(t, global.metrics(), "\nattempts ")
	assert.Len(t, given.spans.Ended(), 2)
}

func TestNoSecretIsInAnySpanOrMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		attempts := 0
		client := l.client(&heed.Transport{
			Key: func(*http.Request) string { return "key-s3cr3t" },
			Base: base(func(req *http.Request) (*http.Response, error) {
				attempts++
				switch attempts {
				case 1:
					return nil, errors.New("err-s3cr3t")
				case 2:
					resp := answer(req, 429)
					resp.Header = http.Header{"Retry-After": {"2"}, "Set-Cookie": {"cookie-s3cr3t"}, "X-Ratelimit-Reset": {"s3cr3t"}}
					return resp, nil
				case 3:
					panic("panic-s3cr3t")
				}
				return answer(req, 200), nil
			}),
			Pacer: interval(time.Second), Board: gone{},
		})
		url := "http://user:pass-s3cr3t@example.com/s3cr3t?key=s3cr3t#s3cr3t"
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer s3cr3t")
		assert.Panics(t, func() { client.Do(req) })
		client.Transport = otelheed.NewTransport(&heed.Transport{Pacer: full{}}, l.options())
		_, err = client.Do(req)
		require.ErrorIs(t, err, errFull)
		all := l.tree() + l.metrics()
		for _, span := range l.spans.Ended() {
			all += fmt.Sprintf("%+v", span)
			all += fmt.Sprintf("%+v %+v %+v %+v", span.Attributes(), span.Events(), span.Status(), span.Name())
		}
		require.Len(t, l.spans.Ended(), 5)
		for _, event := range []string{"heed.verdict", "heed.wait", "heed.refused", "heed.degraded"} {
			assert.Contains(t, all, event)
		}
		assert.NotContains(t, strings.ToLower(all), "s3cr3t")
	})
}

func TestARequestWithoutAURLGetsBasesError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		resp, err := l.client(nil).Transport.RoundTrip(&http.Request{})
		if err == nil {
			resp.Body.Close()
		}
		assert.ErrorContains(t, err, "nil Request.URL")
		assert.Contains(t, l.tree(), "\nheed GET internal 0s-0s [attempts=1, *errors.errorString] Error\n")
	})
}
