package otelheed_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/otelheed"
)

// A lab is where spans and metrics go. Its times count from when it was made.
type lab struct {
	t      testing.TB
	began  time.Time
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
	reader *metric.ManualReader
	meters *metric.MeterProvider
}

func newLab(t testing.TB) *lab {
	l := &lab{t: t, began: time.Now(), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	l.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(l.spans))
	l.meters = metric.NewMeterProvider(metric.WithReader(l.reader))
	return l
}

func (l *lab) options() otelheed.Options {
	return otelheed.Options{TracerProvider: l.traces, MeterProvider: l.meters, Propagator: propagation.TraceContext{}}
}

// otelhttp is around base.
func (l *lab) otelhttp(base http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(l.traces), otelhttp.WithMeterProvider(l.meters),
		otelhttp.WithPropagators(propagation.TraceContext{}))
}

// client is one of t, reported to l.
func (l *lab) client(t *heed.Transport) *http.Client { return l.clientWith(t, nil) }

// clientWith has attempts make the spans of attempts. The metrics show its budget until the test ends.
func (l *lab) clientWith(t *heed.Transport, attempts func(http.RoundTripper) http.RoundTripper) *http.Client {
	o := l.options()
	o.Attempts = attempts
	client := &http.Client{Transport: otelheed.NewTransport(t, o)}
	l.t.Cleanup(func() { runtime.KeepAlive(client) })
	return client
}

// tree shows all spans that have ended: each below its parent, with its events and attributes.
// Of otelhttp's attributes it shows those that otelheed knows. It shows seconds, rounded down.
func (l *lab) tree() string {
	var s strings.Builder
	all := l.spans.Ended()
	slices.SortStableFunc(all, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	known := map[string]bool{}
	for _, span := range all {
		known[span.SpanContext().SpanID().String()] = true
	}
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, span := range all {
			above := span.Parent().SpanID().String()
			if !known[above] {
				above = ""
			}
			if above == parent {
				fmt.Fprintf(&s, "%s%s %v %v-%v%s%s\n", indent, span.Name(), span.SpanKind(),
					l.at(span.StartTime()), l.at(span.EndTime()), l.attributes(span), status(span))
				for _, e := range span.Events() {
					fmt.Fprintf(&s, "%s- %s %v%s\n", indent, e.Name, l.at(e.Time), shown(e.Attributes))
				}
				below(span.SpanContext().SpanID().String(), indent+"  ")
			}
		}
	}
	below("", "")
	return "\n" + s.String()
}

func (l *lab) at(t time.Time) time.Duration { return t.Sub(l.began).Truncate(time.Second) }

func status(span sdktrace.ReadOnlySpan) string {
	if span.Status().Code == codes.Unset {
		return ""
	}
	return " " + strings.TrimSpace(fmt.Sprint(span.Status().Code, " ", span.Status().Description))
}

func (l *lab) attributes(span sdktrace.ReadOnlySpan) string {
	attrs := span.Attributes()
	if span.InstrumentationScope().Name == otelhttp.ScopeName {
		attrs = slices.DeleteFunc(slices.Clone(attrs), func(a attribute.KeyValue) bool {
			return strings.HasPrefix(string(a.Key), "network.") || a.Key == "url.full"
		})
	}
	return shown(attrs)
}

// shown are the attributes, without those that are the same in all tests.
func shown(attrs []attribute.KeyValue) string {
	var all []string
	for _, a := range attrs {
		switch a.Key {
		case "http.request.method", "server.address", "server.port":
			continue
		case "http.response.status_code", "error.type", "heed.verdict":
			all = append(all, a.Value.String())
		default:
			name := string(a.Key)
			for _, prefix := range []string{"http.request.", "heed.wait.", "heed."} {
				name = strings.TrimPrefix(name, prefix)
			}
			all = append(all, name+"="+a.Value.String())
		}
	}
	if all == nil {
		return ""
	}
	return " [" + strings.Join(all, ", ") + "]"
}

// metrics shows the points of heed.client.*, sorted.
func (l *lab) metrics() string {
	var all metricdata.ResourceMetrics
	require.NoError(l.t, l.reader.Collect(l.t.Context(), &all))
	var lines []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if !strings.HasPrefix(m.Name, "heed.client.") {
				continue
			}
			name := fmt.Sprintf("%s %s", strings.TrimPrefix(m.Name, "heed.client."), m.Unit)
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s%s %d", name, set(p.Attributes), p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s%s %d of %.3g", name, set(p.Attributes), p.Count, p.Sum))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s%s %.3g", name, set(p.Attributes), p.Value))
				}
			default:
				l.t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	slices.Sort(lines)
	return "\n" + strings.Join(lines, "\n") + "\n"
}

func set(s attribute.Set) string {
	var all []string
	for _, a := range s.ToSlice() {
		all = append(all, a.Value.String())
	}
	return " [" + strings.Join(all, ", ") + "]"
}

// call reads what url answers to its end.
func call(t testing.TB, client *http.Client, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp.StatusCode
}

// every is a Backoff without jitter.
func every(d time.Duration) heed.Backoff { return func(heed.Attempt) time.Duration { return d } }

// base is a RoundTripper that is a function.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// always is a base that answers with a status.
func always(status int) base {
	return func(req *http.Request) (*http.Response, error) { return answer(req, status), nil }
}

func answer(req *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}
}

var errBroken = errors.New("broken")

func assertTree(t testing.TB, want string, l *lab) {
	t.Helper()
	assert.Equal(t, want, l.tree())
	assert.Len(t, l.spans.Started(), len(l.spans.Ended()), "spans that never ended")
}
