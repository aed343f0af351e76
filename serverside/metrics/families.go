package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed/serverside"
)

// events are the counters of the Events that an Audit gets, by rule.
var events = [...]struct{ name, help string }{
	serverside.Denied: {"rate_limit_exceeded_total",
		"Denied requests, by the first rule that denied."},
	serverside.WouldDeny: {"rate_limit_would_exceed_total",
		"Requests that a rule with DryRun would have denied."},
	serverside.NearLimit: {"rate_limit_near_limit_total",
		"Requests that took a quota below a tenth."},
	serverside.HotKey: {"rate_limit_hot_keys_total",
		"Keys that were denied more than 100 times in a minute."},
	serverside.Bypassed: {"rate_limit_bypassed_total",
		"Requests that an entry of the allow-list admitted. strategy is the entry's name."},
	serverside.Penalized: {"rate_limit_penalties_total",
		"Penalties that began."},
	serverside.LimitsFailed: {"rate_limit_limits_failures_total",
		"Requests whose own limits could not be looked up."},
	serverside.ForwardingIgnored: {"rate_limit_forwarding_ignored_total",
		"Configurations in which an untrusted peer sent X-Forwarded-For. If it is a proxy, its clients share one quota."},
	serverside.StoreLate: {"rate_limit_store_late_total",
		"Requests that were counted in this process because it was late itself. The store was not down."},
	serverside.ForwardingDisputed: {"rate_limit_forwarding_disputed_total",
		"Minutes in which the fields of a trusted proxy contradicted each other."},
	serverside.ResponseUnseen: {"rate_limit_response_unseen_total",
		"Configurations in which a response bypassed the limiter, so no pardon, refund or penalty followed."},
	serverside.ConfigWarning: {"rate_limit_config_warnings_total",
		"Likely mistakes in configurations."},
}

// Labels of routes.
var (
	byEndpoint = []string{"endpoint"}
	byRule     = []string{"endpoint", "strategy"}
)

// Metrics that are computed at each scrape.
var (
	headroom = prometheus.NewDesc("rate_limit_headroom_ratio",
		"The smallest part of the rule's quota that a request left, in the last 5 to 10 minutes.", byRule, nil)
	topDenials = prometheus.NewDesc("rate_limit_top_denials",
		"Denials of the keys with the most, in the last 5 to 10 minutes. key is a hash, as in the log.",
		append(byRule[:2:2], "key"), nil)
	forgotten = prometheus.NewDesc("rate_limit_memory_forgotten_total",
		"Keys that were forgotten before their quota was whole again, because the process keeps no more.", nil, nil)
	dropped = prometheus.NewDesc("rate_limit_memory_dropped_total",
		"Slots for requests in flight that were never released, until the garbage collector freed them.", nil, nil)
)

// families are the metrics that are kept.
type families struct {
	decisions   *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	remaining   *prometheus.HistogramVec
	failures    *prometheus.CounterVec
	failOpen    *prometheus.CounterVec
	events      [len(events)]*prometheus.CounterVec // nil for kinds that are not counted
	unavailable prometheus.Gauge
	changes     *prometheus.CounterVec
	applied     prometheus.Counter // of changes
	rejected    prometheus.Counter // of changes
	collected   []prometheus.Collector
}

func newFamilies(o Options) (f families) {
	f.decisions = f.counter("rate_limit_decisions_total",
		"Decisions on requests: one for each request, or for each stage if rules have several.", "endpoint", "verdict")
	f.duration = f.histogram("rate_limit_check_duration_seconds",
		"How long a decision took, with the wait for the store.", o.Buckets)
	f.remaining = f.histogram("rate_limit_remaining_ratio",
		"Samples of what a decision left of the tightest quota, from 0 to 1.", prometheus.LinearBuckets(0, .1, 10))
	f.failures = f.counter("rate_limit_store_failures_total",
		"Failures of the store, Redis or another, by what the rule does about them.", "endpoint", "mode")
	f.failOpen = f.counter("rate_limit_fail_open_total",
		"Requests that were admitted uncounted because the store failed.", byEndpoint...)
	for kind, e := range events {
		if e.name != "" {
			f.events[kind] = f.counter(e.name, e.help, byRule...)
		}
	}
	f.unavailable = prometheus.NewGauge(prometheus.GaugeOpts{Name: "rate_limit_redis_unavailable",
		Help: "1 from a failure of the store until it decides again, otherwise 0."})
	f.collected = append(f.collected, f.unavailable)
	f.changes = f.counter("rate_limit_config_changes_total",
		"Changes of the configuration, by whether they were applied or rejected.", "result")
	f.applied, f.rejected = f.changes.WithLabelValues("applied"), f.changes.WithLabelValues("rejected")
	return f
}

func (f *families) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.collected = append(f.collected, c)
	return c
}

func (f *families) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	o := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	h := prometheus.NewHistogramVec(o, byEndpoint)
	f.collected = append(f.collected, h)
	return h
}

func (f *families) describe(descs chan<- *prometheus.Desc) {
	for _, c := range f.collected {
		c.Describe(descs)
	}
	descs <- headroom
	descs <- topDenials
	descs <- forgotten
	descs <- dropped
}

func (f *families) collect(metrics chan<- prometheus.Metric) {
	for _, c := range f.collected {
		c.Collect(metrics)
	}
}
