// Package clientside counts what Transports of package heed do, for Prometheus:
//
//	m, err := clientside.New(prometheus.DefaultRegisterer, clientside.Options{})
//	client := &http.Client{Transport: &heed.Transport{Trace: m.Trace(nil)}}
//
// The names are listed in docs/metrics.md. It is in the module of the limiter's
// metrics, and apart from them, so that a server does not link a client.
package clientside

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed"
)

// Options are how a Metrics counts. The zero value is right for most.
type Options struct {
	// Hosts is how many hosts are told apart; all beyond them are "other". If
	// zero, 100.
	Hosts int
}

// A Metrics counts what Transports do. It is safe for concurrent use, and a
// prometheus.Collector.
type Metrics struct {
	options  Options
	attempts *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	degraded prometheus.Counter

	mu    sync.RWMutex
	hosts map[string]bool // those that are told apart; guarded by mu
}

// New returns a Metrics that is registered with reg, or with none if that is nil.
// If one with the same options is registered already, New returns that one.
func New(reg prometheus.Registerer, options Options) (*Metrics, error) {
	if options.Hosts < 0 {
		return nil, errors.New("clientside: Hosts must not be negative")
	}
	if options.Hosts == 0 {
		options.Hosts = 100
	}
	m := &Metrics{
		options: options,
		hosts:   make(map[string]bool),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "heed_attempts_total",
			Help: "Attempts, by what came of them and what followed: with the verdict again, a retry."}, []string{"host", "outcome", "verdict"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "heed_wait_seconds",
			Help:    "Waits of requests: before a retry, for a cool-down, and for a Pacer.",
			Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300}}, []string{"host", "cause"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "heed_refused_total",
			Help: "Requests that were not sent, or not sent again, because they would have had to wait for too long."}, []string{"host", "cause"}),
		degraded: prometheus.NewCounter(prometheus.CounterOpts{Name: "heed_store_failures_total",
			Help: "Times that a Board, Budget or Pacer told that it works without its store."}),
	}
	if reg == nil {
		return m, nil
	}
	return m.register(reg)
}

func (m *Metrics) register(reg prometheus.Registerer) (*Metrics, error) {
	err := reg.Register(m)
	if err == nil {
		return m, nil
	}
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if before, ok := registered.ExistingCollector.(*Metrics); ok {
			if before.options != m.options {
				return nil, errors.New("clientside: registered before, with other options")
			}
			return before, nil
		}
	}
	return nil, fmt.Errorf("clientside: register: %w", err)
}

// Trace is a heed.Transport.Trace that counts, and then tells next, which may be
// nil.
func (m *Metrics) Trace(next *heed.Trace) *heed.Trace {
	if next == nil {
		next = new(heed.Trace)
	}
	return &heed.Trace{
		Paced: func(req *http.Request, wait time.Duration) {
			m.waited(req, heed.CausePace.String(), wait)
			if next.Paced != nil {
				next.Paced(req, wait)
			}
		},
		Cooled: func(req *http.Request, key string, wait time.Duration) {
			m.waited(req, heed.CauseCoolDown.String(), wait)
			if next.Cooled != nil {
				next.Cooled(req, key, wait)
			}
		},
		Decided: func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
			m.decided(a, v, wait)
			if next.Decided != nil {
				next.Decided(a, v, wait)
			}
		},
		Refused: func(req *http.Request, err *heed.OverdueError) {
			m.refused.WithLabelValues(m.host(req), err.Cause.String()).Inc()
			if next.Refused != nil {
				next.Refused(req, err)
			}
		},
		Degraded: func(err error) {
			m.degraded.Inc()
			if next.Degraded != nil {
				next.Degraded(err)
			}
		},
	}
}

func (m *Metrics) decided(a heed.Attempt, v heed.Verdict, wait time.Duration) {
	m.attempts.WithLabelValues(m.host(a.Request), outcome(a), v.String()).Inc()
	if a.Cause != 0 {
		m.waited(a.Request, a.Cause.String(), wait)
	}
}

func (m *Metrics) waited(req *http.Request, cause string, wait time.Duration) {
	m.waits.WithLabelValues(m.host(req), cause).Observe(wait.Seconds())
}

// outcome is the class of a's status. Throttled and unavailable are told apart
// from the others.
func outcome(a heed.Attempt) string {
	if a.Err != nil || a.Response == nil {
		return "error"
	}
	switch code := a.Response.StatusCode; {
	case code == http.StatusTooManyRequests:
		return "429"
	case code == http.StatusServiceUnavailable:
		return "503"
	case code < 100 || code > 599:
		return "other"
	default:
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[code/100-1]
	}
}

// host is the host of req, unless there are too many.
func (m *Metrics) host(req *http.Request) string {
	host := strings.ToValidUTF8(strings.ToLower(req.URL.Host), "\uFFFD")
	m.mu.RLock()
	known, full := m.hosts[host], len(m.hosts) >= m.options.Hosts
	m.mu.RUnlock()
	switch {
	case known:
		return host
	case full:
		return "other"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.hosts) >= m.options.Hosts && !m.hosts[host] {
		return "other"
	}
	m.hosts[strings.Clone(host)] = true // which may be a part of a long URL
	return host
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	m.attempts.Describe(descs)
	m.waits.Describe(descs)
	m.refused.Describe(descs)
	m.degraded.Describe(descs)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	m.attempts.Collect(metrics)
	m.waits.Collect(metrics)
	m.refused.Collect(metrics)
	m.degraded.Collect(metrics)
}
