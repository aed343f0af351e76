// Package metrics counts what limiters of package serverside do, for Prometheus:
//
//	m, err := metrics.New(prometheus.DefaultRegisterer, metrics.Options{})
//	limiter, err := serverside.New(m.Instrument(cfg))
//
// The names are listed in docs/metrics.md, with what alarms there are for; the
// rules for those are what heed rules export prometheus prints.
//
// There are as many series as the rules make, whatever clients send: the label
// endpoint is the Pattern of a rule, never a path, strategy is its Name, and of the
// keys that are denied only the most frequent are shown, as hashes.
package metrics
