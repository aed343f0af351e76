package otelheed

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/heedhttp/heed"
)

// metrics count what a Transport does. Nothing in it leads to the Transport, so that this can
// be collected while a MeterProvider still has the metrics.
type metrics struct {
	attempts, retries, refusals, failures metric.Int64Counter

	waits   metric.Float64Histogram
	balance metric.Float64ObservableGauge
	servers servers
}

func newMetrics(meter metric.Meter, o Options) *metrics {
	count := func(name, unit, description string) metric.Int64Counter {
		return made(meter, func(m metric.Meter) (metric.Int64Counter, error) {
			return m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		})
	}
	return &metrics{
		attempts: count("heed.client.attempts", "{attempt}", "Attempts, by what came of them and what followed."),
		retries:  count("heed.client.retries", "{retry}", "Attempts that were not the first of their call."),
		refusals: count("heed.client.refusals", "{refusal}",
			"Requests that were not sent, or not sent again, because they would have had to wait for too long."),
		failures: count("heed.client.store.failures", "{failure}", "Times that a Board worked without its store."),
		waits: made(meter, func(m metric.Meter) (metric.Float64Histogram, error) {
			return m.Float64Histogram("heed.client.wait.duration", metric.WithUnit("s"),
				metric.WithDescription("Waits of requests: before a retry, for a host that is down, for a cool-down, and for a Pacer."),
				metric.WithExplicitBucketBoundaries(.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300))
		}),
		balance: made(meter, func(m metric.Meter) (metric.Float64ObservableGauge, error) {
			return m.Float64ObservableGauge("heed.client.budget.balance", metric.WithUnit("{retry}"),
				metric.WithDescription("Retries that the budget has for a server now."))
		}),
		servers: newServers(o),
	}
}

// made returns what make returns, or an instrument that does nothing if make fails.
func made[T any](meter metric.Meter, make func(metric.Meter) (T, error)) T {
	instrument, err := make(meter)
	if err != nil {
		otel.Handle(err)
		instrument, _ = make(noop.Meter{})
	}
	return instrument
}

// observe has meter read the balances of a budget, until they are unregistered. It returns nil
// if they cannot be read.
func (m *metrics) observe(meter metric.Meter, budget heed.Budget) metric.Registration {
	b, ok := budget.(interface{ Balance(key string) float64 })
	if !ok {
		return nil
	}
	r, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for key, server := range m.servers.all() {
			o.ObserveFloat64(m.balance, b.Balance(key), metric.WithAttributes(server...))
		}
		return nil
	}, m.balance)
	if err != nil {
		otel.Handle(err)
		return nil
	}
	return r
}

func (m *metrics) attempted(a heed.Attempt, v heed.Verdict) {
	ctx, server := a.Request.Context(), m.servers.of(a.Request)
	m.attempts.Add(ctx, 1, with(server, outcome(a), verdictKey.String(v.String())))
	if a.Number > 1 {
		m.retries.Add(ctx, 1, with(server))
	}
}

func (m *metrics) waited(req *http.Request, cause heed.Cause, wait time.Duration) {
	m.waits.Record(req.Context(), wait.Seconds(), with(m.servers.of(req), causeKey.String(cause.String())))
}

func (m *metrics) refused(req *http.Request, err *heed.OverdueError) {
	m.refusals.Add(req.Context(), 1, with(m.servers.of(req), causeKey.String(err.Cause.String())))
}

func (m *metrics) degraded() {
	m.failures.Add(context.Background(), 1, with(m.servers.attrs))
}

func with(server []attribute.KeyValue, attrs ...attribute.KeyValue) metric.MeasurementOption {
	// A slice of its own, because NewSet sorts what it is given.
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(server, attrs)...))
}

// servers are those that the metrics tell apart.
type servers struct {
	most  int
	attrs []attribute.KeyValue // of all metrics
	other []attribute.KeyValue

	mu    sync.RWMutex
	known map[string][]attribute.KeyValue // by scheme://host; guarded by mu
}

func newServers(o Options) servers {
	attrs := slices.Clone(o.Attributes)
	if o.Servers <= 0 {
		o.Servers = 100
	}
	return servers{
		most: o.Servers, attrs: attrs, other: append(slices.Clip(attrs), semconv.ServerAddress("_OTHER")),
		known: make(map[string][]attribute.KeyValue),
	}
}

// of returns the attributes of the server that req is for.
func (s *servers) of(req *http.Request) []attribute.KeyValue {
	key := heed.ByHost(req)
	s.mu.RLock()
	server, full := s.known[key], len(s.known) >= s.most
	s.mu.RUnlock()
	switch {
	case server != nil:
		return server
	case full:
		return s.other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if server = s.known[key]; server == nil && len(s.known) >= s.most {
		return s.other
	}
	if server == nil {
		server = append(slices.Clip(s.attrs), serverAttributes(req.URL)...)
		s.known[strings.Clone(key)] = server // the key may be a part of a long URL
	}
	return server
}

// all returns the servers that are told apart, by scheme://host.
func (s *servers) all() map[string][]attribute.KeyValue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.known)
}
