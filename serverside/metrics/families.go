package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed/serverside"
)

// events are the counters of what an Audit is told, by rule.
var events = [...]struct{ name, help string }{
	serverside.Denied:            {"rate_limit_exceeded_total", "Requests that were denied, by the first rule that denies."},
	serverside.WouldDeny:         {"rate_limit_would_exceed_total", "Requests that a rule with DryRun would have denied."},
	serverside.NearLimit:         {"rate_limit_near_limit_total", "Requests that left less than a tenth of a quota where the one before had found more."},
	serverside.HotKey:            {"rate_limit_hot_keys_total", "Keys that were denied for more than 100 times within a minute."},
	serverside.Bypassed:          {"rate_limit_bypassed_total", "Requests that an entry of the allow-list admitted; strategy is its name."},
	serverside.Penalized:         {"rate_limit_penalties_total", "Penalties that began."},
	serverside.LimitsFailed:      {"rate_limit_limits_failures_total", "Requests whose own limits could not be looked up."},
	serverside.ForwardingIgnored: {"rate_limit_forwarding_ignored_total", "Configurations in which a peer that nobody trusts sent X-Forwarded-For: if it is a proxy, its clients share one quota."},

	serverside.StoreLate:          {"rate_limit_store_late_total", "Requests that were counted in this process because it was late itself, and the Store not gone."},
	serverside.ForwardingDisputed: {"rate_limit_forwarding_disputed_total", "Minutes in which a trusted proxy's fields said different clients."},
	serverside.ResponseUnseen:     {"rate_limit_response_unseen_total", "Configurations in which a response did not go through the limiter, so that nothing was settled."},
	serverside.ConfigWarning:      {"rate_limit_config_warnings_total", "Likely mistakes in configurations."},
}

// Labels of routes.
var (
	byEndpoint = []string{"endpoint"}
	byRule     = []string{"endpoint", "strategy"}
)

// Families that are made of what is known at the time.
var (
	headroom = prometheus.NewDesc("rate_limit_headroom_ratio",
		"The least part of the rule's quota that a request left in the last 5 to 10 minutes.", byRule, nil)
	topDenials = prometheus.NewDesc("rate_limit_top_denials",
		"Denials of a key in the last 5 to 10 minutes, for those with the most; key is a hash, as in the log.",
		append(byRule[:2:2], "key"), nil)
	forgotten = prometheus.NewDesc("rate_limit_memory_forgotten_total",
		"Keys that owed something and were forgotten, because this process keeps no more: see Memory.MaxKeys.", nil, nil)
	dropped = prometheus.NewDesc("rate_limit_memory_dropped_total",
		"Places in flight that were not given back, but found free in the end.", nil, nil)
)

// families are what is counted.
type families struct {
	decisions   *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	remaining   *prometheus.HistogramVec
	failures    *prometheus.CounterVec
	failOpen    *prometheus.CounterVec
	events      [len(events)]*prometheus.CounterVec // nil where nothing is counted
	unavailable prometheus.Gauge
	changes     *prometheus.CounterVec
	applied     prometheus.Counter // of changes
	rejected    prometheus.Counter // of changes
	collected   []prometheus.Collector
}

func newFamilies(o Options) (f families) {
	f.decisions = f.counter("rate_limit_decisions_total", "Decisions on requests: one for each, or one for each stage that rules have.", "endpoint", "verdict")
	f.duration = f.histogram("rate_limit_check_duration_seconds", "How long decisions took, with what they waited for the Store.", o.Buckets)
	f.remaining = f.histogram("rate_limit_remaining_ratio", "Samples of the part of the tightest quota that a decision left, from 0 to 1.", prometheus.LinearBuckets(0, .1, 10))
	f.failures = f.counter("rate_limit_store_failures_total", "Failures of the Store, Redis or another, by what was done about them.", "endpoint", "mode")
	f.failOpen = f.counter("rate_limit_fail_open_total", "Requests that were admitted without being counted, because the Store failed.", byEndpoint...)
	for kind, e := range events {
		if e.name != "" {
			f.events[kind] = f.counter(e.name, e.help, byRule...)
		}
	}
	f.unavailable = prometheus.NewGauge(prometheus.GaugeOpts{Name: "rate_limit_redis_unavailable",
		Help: "1 from a failure of the Store until it decides again, otherwise 0."})
	f.collected = append(f.collected, f.unavailable)
	f.changes = f.counter("rate_limit_config_changes_total", "Configurations that were applied, and those that were rejected.", "result")
	f.applied, f.rejected = f.changes.WithLabelValues("applied"), f.changes.WithLabelValues("rejected")
	return f
}

func (f *families) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.collected = append(f.collected, c)
	return c
}

func (f *families) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, byEndpoint)
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
