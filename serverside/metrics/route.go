package metrics

import (
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed/internal/topk"
	"github.com/heedhttp/heed/serverside"
)

// mostRoutes is how many rules have labels of their own. One Config has fewer rules, but
// each Reconfigure may bring others.
const mostRoutes = 1000

// other is the name of all rules beyond mostRoutes.
var other = name{"other", "other"}

// A name is a rule's name and pattern.
type name struct{ rule, pattern string }

// labels returns n as labels: valid UTF-8, and with the pattern "/" if there is none.
func (n name) labels() name {
	if n.pattern == "" {
		n.pattern = "/"
	}
	return name{strings.ToValidUTF8(n.rule, "\uFFFD"), strings.ToValidUTF8(n.pattern, "\uFFFD")}
}

// A route has the metrics of one rule. Rules with the same pattern share those that have no
// other label.
type route struct {
	name      name // the labels
	verdicts  [serverside.Trusted + 1]prometheus.Counter
	events    [len(events)]prometheus.Counter
	failures  [serverside.FailLocal + 1]prometheus.Counter
	failOpen  prometheus.Counter
	duration  prometheus.Observer
	remaining prometheus.Observer

	decided atomic.Uint64 // how many decisions had a quota
	left    least
	denied  tops
}

// route returns the route of a rule. It allocates only for a new one.
func (m *Metrics) route(n name) *route {
	if r := m.known(n); r != nil {
		return r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.known(n); r != nil {
		return r
	}
	routes := maps.Clone(*m.routes.Load())
	if len(routes) >= mostRoutes {
		n = other
	}
	labels := n.labels()
	if routes[labels] == nil { // two names may have the same labels
		routes[labels] = m.families.route(labels)
	}
	routes[n] = routes[labels]
	m.routes.Store(&routes)
	return routes[n]
}

// known returns the route of a rule, nil if it is new. If there are too many, it returns that
// of other.
func (m *Metrics) known(n name) *route {
	routes := *m.routes.Load()
	if r := routes[n]; r != nil {
		return r
	}
	return routes[other]
}

// route makes a route with all its series, which begin at 0.
func (f *families) route(n name) *route {
	r := &route{name: n, failOpen: f.failOpen.WithLabelValues(n.pattern),
		duration: f.duration.WithLabelValues(n.pattern), remaining: f.remaining.WithLabelValues(n.pattern)}
	for v := serverside.Admitted; v <= serverside.Trusted; v++ {
		r.verdicts[v] = f.decisions.WithLabelValues(n.pattern, v.String())
	}
	for mode := serverside.FailOpen; mode <= serverside.FailLocal; mode++ {
		r.failures[mode] = f.failures.WithLabelValues(n.pattern, mode.String())
	}
	for kind, family := range f.events {
		if family != nil {
			r.events[kind] = family.WithLabelValues(n.pattern, n.rule)
		}
	}
	r.left.reset()
	return r
}

// observe counts a decision. One in every so many is a sample of what was left.
func (r *route) observe(o serverside.Observation, every uint64) {
	if o.Verdict >= serverside.Admitted && int(o.Verdict) < len(r.verdicts) {
		r.verdicts[o.Verdict].Inc()
	}
	r.duration.Observe(o.Took.Seconds())
	if o.Verdict == serverside.Uncounted {
		r.failOpen.Inc()
	}
	if !(o.Left >= 0 && o.Left <= 1) {
		return
	}
	r.left.add(o.Left)
	if (r.decided.Add(1)-1)%every == 0 {
		r.remaining.Observe(o.Left)
	}
}

// count counts an Event, if its kind is counted.
func (r *route) count(e serverside.Event) {
	if e.Kind < 0 || int(e.Kind) >= len(r.events) || r.events[e.Kind] == nil {
		return
	}
	r.events[e.Kind].Inc()
	if e.Kind == serverside.Denied {
		r.denied.add(e.Key)
	}
}

// failed counts a failure of the Store.
func (r *route) failed(mode serverside.FailureMode) {
	if mode >= 0 && int(mode) < len(r.failures) {
		r.failures[mode].Inc()
	}
}

// rotate ends the window if it is over, and forgets the one before.
func (m *Metrics) rotate(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.rotated) < window {
		return
	}
	m.rotated = now
	for n, r := range *m.routes.Load() {
		if n == r.name {
			r.left.rotate()
			r.denied.rotate()
		}
	}
}

// collect sends what is computed at each scrape.
func (r *route) collect(metrics chan<- prometheus.Metric, keys int) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{r.name.pattern, r.name.rule}, labels...)
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if left, ok := r.left.value(); ok {
		gauge(headroom, left)
	}
	for _, k := range r.denied.most(keys) {
		gauge(topDenials, float64(k.N), k.Key)
	}
}

// A least is the least value of this window and the one before.
type least struct {
	now, before atomic.Uint64 // bits of a float64: from 0 to +Inf their order is the same
}

var nothing = math.Float64bits(math.Inf(1))

func (l *least) reset() {
	l.now.Store(nothing)
	l.before.Store(nothing)
}

func (l *least) add(v float64) {
	bits := math.Float64bits(v)
	for old := l.now.Load(); bits < old; old = l.now.Load() {
		if l.now.CompareAndSwap(old, bits) {
			return
		}
	}
}

func (l *least) rotate() { l.before.Store(l.now.Swap(nothing)) }

// value returns the least value, if there was one.
func (l *least) value() (float64, bool) {
	bits := min(l.now.Load(), l.before.Load())
	return math.Float64frombits(bits), bits != nothing
}

// tops are the keys that were denied most in this window and the one before.
type tops struct {
	mu   sync.Mutex
	keys topk.Recent[struct{}] // guarded by mu
}

func (t *tops) add(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.Add(strings.ToValidUTF8(key, "\uFFFD"))
}

func (t *tops) rotate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.Rotate()
}

// most returns up to n keys, the most frequent first.
func (t *tops) most(n int) []topk.Count[struct{}] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.Most(n)
}
