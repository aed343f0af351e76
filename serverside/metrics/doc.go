// Package metrics counts for Prometheus what a serverside.Limiter does:
//
//	m, err := metrics.New(prometheus.DefaultRegisterer, metrics.Options{})
//	limiter, err := serverside.New(m.Instrument(cfg))
//
// docs/metrics.md lists the metrics, with queries. heed rules export prometheus prints alert
// rules for them.
//
// The number of series depends on the rules, and not on what clients send: the label
// endpoint is the Pattern of a rule, never the path of a request, and strategy is its Name.
// Keys are shown as hashes, and only those that are denied most.
package metrics
