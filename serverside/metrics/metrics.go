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

// Options are how a Metrics counts. The zero value is right for most.
type Options struct {
	// Buckets are the upper bounds of rate_limit_check_duration_seconds, in
	// seconds. If nil, from 10 µs to 1 s; 0.1 is among them, which an alarm asks
	// for.
	Buckets []float64

	// SampleEvery is how many decisions of a route there are for each one of
	// which rate_limit_remaining_ratio is told. If zero, 16; 1 is all of them.
	SampleEvery int

	// TopKeys is how many keys of each rule rate_limit_top_denials shows at
	// most, up to 100. If zero, 10; if negative, none.
	TopKeys int
}

// window is how old what is told of the top keys and of the headroom gets before
// it is forgotten, and at most twice as old. Windows end with scrapes, so if those
// are rarer, it is since the last one.
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

// A Metrics counts what Limiters do. It is safe for concurrent use, and a
// prometheus.Collector.
//
// Several Limiters may share one, if their Stores fail and recover together: it
// has one rate_limit_redis_unavailable. Otherwise give each one of its own, with a
// label of its own by prometheus.WrapRegistererWith.
type Metrics struct {
	options  Options
	families families

	memory  atomic.Pointer[quota.Memory]    // that of the Limiter configured last
	routes  atomic.Pointer[map[name]*route] // replaced, not changed
	mu      sync.Mutex                      // guards replacing routes, and what follows
	rotated time.Time
}

// New returns a Metrics that is registered with reg, or with none if that is nil.
// If one with the same options is registered already, New returns that one, so that
// what is set up twice is counted together.
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

// Instrument returns cfg with an Audit and an Observe that count, and then do what
// those of cfg do. Use it for each Reconfigure too; and for rules in a file, on the
// Config of the rulefile.Env.
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

// Audit is a serverside.Config.Audit that counts e and has next do the rest. If
// next is nil, that is serverside.LogAudit: nobody is denied in silence. What
// Observe counts is not among it: a Config needs both.
func (m *Metrics) Audit(next func(serverside.Event)) func(serverside.Event) {
	if next == nil {
		next = serverside.LogAudit(nil)
	}
	return func(e serverside.Event) {
		m.count(e)
		next(e)
	}
}

// Observe is a serverside.Config.Observe.
func (m *Metrics) Observe(o serverside.Observation) {
	m.route(name{o.Rule, o.Pattern}).observe(o, uint64(m.options.SampleEvery))
}

// count counts e.
func (m *Metrics) count(e serverside.Event) {
	switch e.Kind {
	case serverside.StoreRecovered:
		m.families.unavailable.Set(0)
	case serverside.Configured: // which tells of a failure anew
		m.families.unavailable.Set(0)
		m.families.applied.Inc()
		m.memory.Store(e.Memory)
	case serverside.ConfigRejected:
		m.families.rejected.Inc()
	case serverside.StoreFailed:
		m.families.unavailable.Set(1)
		if e.Rule == "" { // New asked, and no request
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
