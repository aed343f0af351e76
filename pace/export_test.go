package pace

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
)

// TickAt makes a line believe that its timer fires at now, while something
// happens for which waiters need the lock to notice it.
func (k *Keyed) TickAt(key string, now time.Time, meanwhile func()) {
	k.lines.Find(hostkey.NameOf(key)).tickAt(now, meanwhile)
}

func (w *with) TickAt(now time.Time) { w.line.tickAt(now, func() {}) }

func (l *line) tickAt(now time.Time, meanwhile func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	meanwhile()
	l.refreshLocked(now)
}

// WouldWait is how long a request like req would wait if it came now.
func (a *Advertised) WouldWait(req *http.Request) time.Duration {
	key := a.key(req)
	name, known := a.scopes.AppendRoute(nil, req, a.hosts.Name(req.URL.Scheme, req.URL.Host), a.Profiles)
	a.mu.Lock()
	k := a.keys.Find(hostkey.NameOf(key))
	a.mu.Unlock()
	if k == nil {
		return 0
	}
	costs := a.costs(req, k.units)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	k.refreshLocked(now)
	r := k.route(name, known)
	r.addEstimates(costs)
	c := claim{gates: &r.gates, costs: costs}
	return c.delay(now, 0)
}

// Sizes is how many routes and policies of req's key are remembered.
func (a *Advertised) Sizes(req *http.Request) (routes, policies int) {
	k := a.keys.Find(hostkey.NameOf(a.key(req)))
	return len(k.routes), len(k.policies)
}

// Held is how many requests are remembered.
func (s *Shared) Held() int {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	n := 0
	for _, h := range s.holds.ids {
		for ; h != nil; h = h.next {
			n++
		}
	}
	return n
}
