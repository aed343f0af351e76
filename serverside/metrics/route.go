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

// mostRoutes bounds the names by which rules are told apart: those of one Config
// are fewer, but each Reconfigure may bring others.
const mostRoutes = 1000

// other stands for all rules beyond mostRoutes.
var other = name{"other", "other"}

// A name is a rule's name and pattern.
type name struct{ rule, pattern string }

// labels is n as it is shown: a rule without a pattern is for every path.
func (n name) labels() name {
	if n.pattern == "" {
		n.pattern = "/"
	}
	return name{strings.ToValidUTF8(n.rule, "\uFFFD"), strings.ToValidUTF8(n.pattern, "\uFFFD")}
}

// A route is what is counted of one rule. What it has in common with other rules of
// the same pattern is counted together.
type route struct {
	name      name // as it is shown
	verdicts  [serverside.Trusted + 1]prometheus.Counter
	events    [len(events)]prometheus.Counter
	failures  [serverside.FailLocal + 1]prometheus.Counter
	failOpen  prometheus.Counter
	duration  prometheus.Observer
	remaining prometheus.Observer

	decided atomic.Uint64
	left    least
	denied  tops
}

// route returns that of n. It allocates only if n is new.
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
	shown := n.labels()
	if routes[shown] == nil { // otherwise two names are shown as one
		routes[shown] = m.families.route(shown)
	}
	routes[n] = routes[shown]
	m.routes.Store(&routes)
	return routes[n]
}

// known returns the route of n, or if there are too many, of other; or nil.
func (m *Metrics) known(n name) *route {
	routes := *m.routes.Load()
	if r := routes[n]; r != nil {
		return r
	}
	return routes[other]
}

// route makes all series of n, so that those of which nothing happens are 0.
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

// observe counts o, and tells what is left of one decision in every so many.
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

// count counts e, if it is of a kind that is.
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

// rotate forgets what is older than the window before the one that is over.
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

// collect tells what is known of this time.
func (r *route) collect(metrics chan<- prometheus.Metric, keys int) {
	if left, ok := r.left.value(); ok {
		metrics <- prometheus.MustNewConstMetric(headroom, prometheus.GaugeValue, left, r.name.pattern, r.name.rule)
	}
	for _, k := range r.denied.most(keys) {
		metrics <- prometheus.MustNewConstMetric(topDenials, prometheus.GaugeValue, float64(k.N), r.name.pattern, r.name.rule, k.Key)
	}
}

// A least is the least of what was added in this window and the one before.
type least struct {
	now, before atomic.Uint64 // the bits of a float64, which are in order from 0 to +Inf
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

// value returns the least, if anything was added.
func (l *least) value() (float64, bool) {
	bits := min(l.now.Load(), l.before.Load())
	return math.Float64frombits(bits), bits != nothing
}

// tops are the keys that were denied in this window and the one before.
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
