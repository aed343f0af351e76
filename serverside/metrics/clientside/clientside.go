// Package clientside counts for Prometheus what a heed.Transport does:
//
//	m, err := clientside.New(prometheus.DefaultRegisterer, clientside.Options{})
//	client := &http.Client{Transport: &heed.Transport{Trace: m.Trace(nil)}}
//
// docs/observability.md lists the metrics, with queries and alert rules. This package
// shares a module with the metrics of limiters, but not a package: a server links no client.
package clientside

import (
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed"
)

// Alerts are alert rules for these metrics: a file for rule_files in prometheus.yml.
//
//go:embed alerts.yml
var Alerts string

// Options change how a Metrics counts. The zero value suits most programs.
type Options struct {
	// Hosts is how many servers have a label of their own. The others share the label
	// "other". A server is a scheme and a host: http and https are two. If zero, 100; a
	// negative one is an error.
	Hosts int
}

// A Metrics counts what Transports do. It is a prometheus.Collector, and safe for
// concurrent use.
type Metrics struct {
	options  Options
	attempts *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	degraded prometheus.Counter
	hosts    hosts
	budgets  budgets
}

// New returns a Metrics that is registered with reg. If reg is nil, the caller registers it.
// A second call with the same reg and options returns the Metrics of the first; with other
// options it is an error.
func New(reg prometheus.Registerer, options Options) (*Metrics, error) {
	if options.Hosts < 0 {
		return nil, errors.New("clientside: Hosts must not be negative")
	}
	if options.Hosts == 0 {
		options.Hosts = 100
	}
	m := &Metrics{
		options: options,
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "heed_attempts_total",
			Help: "Attempts, by outcome and verdict. Those with the verdict again were retried.",
		}, []string{"host", "outcome", "verdict"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "heed_wait_seconds",
			Help:    "How long requests waited before an attempt, by cause.",
			Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300}}, []string{"host", "cause"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "heed_refused_total",
			Help: "Requests that were not sent, or not sent again, because they would have waited too long.",
		}, []string{"host", "cause"}),
		degraded: prometheus.NewCounter(prometheus.CounterOpts{Name: "heed_store_failures_total",
			Help: "Reports of a Board, Budget or Pacer that it works without its store."}),
		hosts: hosts{most: options.Hosts},
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

// Trace returns a heed.Transport.Trace that counts, and then calls the hooks of next.
// next may be nil.
func (m *Metrics) Trace(next *heed.Trace) *heed.Trace {
	if next == nil {
		next = new(heed.Trace)
	}
	return &heed.Trace{
		Paced:  next.Paced,
		Cooled: next.Cooled,
		Waited: func(req *http.Request, cause heed.Cause, took time.Duration) {
			m.seconds.WithLabelValues(m.hosts.label(req), cause.String()).Observe(took.Seconds())
			if next.Waited != nil {
				next.Waited(req, cause, took)
			}
		},
		Decided: func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
			m.attempts.WithLabelValues(m.hosts.label(a.Request), outcome(a), v.String()).Inc()
			if next.Decided != nil {
				next.Decided(a, v, wait)
			}
		},
		Refused: func(req *http.Request, err *heed.OverdueError) {
			m.refused.WithLabelValues(m.hosts.label(req), err.Cause.String()).Inc()
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

// outcome is "429", "503", the class of another status, or "error".
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

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	m.attempts.Describe(descs)
	m.seconds.Describe(descs)
	m.refused.Describe(descs)
	m.degraded.Describe(descs)
	descs <- retriesLeft
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	m.attempts.Collect(metrics)
	m.seconds.Collect(metrics)
	m.refused.Collect(metrics)
	m.degraded.Collect(metrics)
	m.budgets.collect(metrics, m.hosts.known())
}
