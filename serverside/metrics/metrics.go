package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// Options change what a Metrics keeps. The zero value suits most programs.
type Options struct {
	// Buckets are the upper bounds of rate_limit_check_duration_seconds, in
	// seconds, ascending. If nil, from 10 µs to 1 s. An alert rule needs the bound 0.1.
	Buckets []float64

	// SampleEvery is how many decisions there are for each one that
	// rate_limit_remaining_ratio observes: 1 observes all. If zero, 16; a negative one
	// is an error.
	SampleEvery int

	// TopKeys is how many keys rate_limit_top_denials shows for each rule, at
	// most 100. If zero, 10; if negative, none.
	TopKeys int
}

// window is how long the top keys and the headroom count, and twice that is the longest
// they are shown. A window ends with the next scrape.
const window = 5 * time.Minute

var defaultBuckets = []float64{1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, .005, .01, .025, .05, .1, .25, 1}

func (o Options) withDefaults() (Options, error) {
	if o.Buckets == nil {
		o.Buckets = defaultBuckets
	}
	if o.SampleEvery == 0 {
		o.SampleEvery = 16
	}
	if o.TopKeys == 0 {
		o.TopKeys = 10
	}
	return o, o.check()
}

func (o Options) check() error {
	var faults []error
	for i, b := range o.Buckets {
		if math.IsNaN(b) || i > 0 && b <= o.Buckets[i-1] {
			faults = append(faults, fmt.Errorf("metrics: Buckets[%d] must be more than the one before", i))
		}
	}
	if o.SampleEvery < 0 {
		faults = append(faults, errors.New("metrics: SampleEvery must not be negative"))
	}
	if o.TopKeys > 100 {
		faults = append(faults, errors.New("metrics: TopKeys must not be more than 100"))
	}
	return errors.Join(faults...)
}

func (o Options) equal(other Options) bool {
	return slices.Equal(o.Buckets, other.Buckets) && o.SampleEvery == other.SampleEvery && o.TopKeys == other.TopKeys
}

// A Metrics counts what Limiters do. It is a prometheus.Collector, and safe for
// concurrent use.
//
// Limiters that use the same Store may share a Metrics: there is one
// rate_limit_redis_unavailable. Otherwise give each its own Metrics, and tell these apart
// by a label: see prometheus.WrapRegistererWith.
type Metrics struct {
	options  Options
	families families

	memory  atomic.Pointer[quota.Memory]    // of the Limiter that was configured last
	routes  atomic.Pointer[map[name]*route] // replaced, not changed
	mu      sync.Mutex                      // guards replacing routes, and rotated
	rotated time.Time                       // when the window began
}

// New returns a Metrics that is registered with reg. If reg is nil, the caller registers it.
// A second call with the same reg and options returns the Metrics of the first; with other
// options it is an error.
func New(reg prometheus.Registerer, options Options) (*Metrics, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Metrics{options: options, families: newFamilies(options), rotated: time.Now()}
	m.routes.Store(&map[name]*route{})
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
			if !before.options.equal(m.options) {
				return nil, errors.New("metrics: registered before, with other options")
			}
			return before, nil
		}
	}
	return nil, fmt.Errorf("metrics: register: %w", err)
}

// Instrument returns cfg with an Audit and an Observe that count, and then call those of
// cfg. Use it for the Config of New and of each Reconfigure. For rules in a file, use it
// for the Config of the rulefile.Env.
func (m *Metrics) Instrument(cfg serverside.Config) serverside.Config {
	cfg.Audit = m.Audit(cfg.Audit)
	observe := cfg.Observe
	cfg.Observe = m.Observe
	if observe != nil {
		cfg.Observe = func(o serverside.Observation) {
			m.Observe(o)
			observe(o)
		}
	}
	return cfg
}

// Audit returns a serverside.Config.Audit that counts an Event, and then calls next. If
// next is nil, it calls serverside.LogAudit, so that denials are logged. A Config needs
// Observe, too.
func (m *Metrics) Audit(next func(serverside.Event)) func(serverside.Event) {
	if next == nil {
		next = serverside.LogAudit(nil)
	}
	return func(e serverside.Event) {
		m.count(e)
		next(e)
	}
}

// Observe counts a decision: it is a serverside.Config.Observe.
func (m *Metrics) Observe(o serverside.Observation) {
	m.route(name{o.Rule, o.Pattern}).observe(o, uint64(m.options.SampleEvery))
}

func (m *Metrics) count(e serverside.Event) {
	switch e.Kind {
	case serverside.StoreRecovered:
		m.families.unavailable.Set(0)
	case serverside.Configured: // a Store that fails now is reported again
		m.families.unavailable.Set(0)
		m.families.applied.Inc()
		m.memory.Store(e.Memory)
	case serverside.ConfigRejected:
		m.families.rejected.Inc()
	case serverside.StoreFailed:
		m.families.unavailable.Set(1)
		if e.Rule == "" { // New found it, and no request
			return
		}
		m.route(name{e.Rule, e.Pattern}).failed(e.Mode)
	default:
		m.route(name{e.Rule, e.Pattern}).count(e)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	m.families.describe(descs)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	m.rotate(time.Now())
	m.families.collect(metrics)
	if memory := m.memory.Load(); memory != nil {
		metrics <- prometheus.MustNewConstMetric(forgotten, prometheus.CounterValue, float64(memory.Forgotten()))
		metrics <- prometheus.MustNewConstMetric(dropped, prometheus.CounterValue, float64(memory.Dropped()))
	}
	for n, r := range *m.routes.Load() {
		if n == r.name {
			r.collect(metrics, m.options.TopKeys)
		}
	}
}
