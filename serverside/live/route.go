package live

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// mostRoutes bounds the rules that are told apart: each Reconfigure may bring others.
const mostRoutes = 256

// other stands for all rules beyond mostRoutes.
var other = name{"other", "other"}

// A name is a rule's name and pattern.
type name struct{ rule, pattern string }

// A route is what is known of one rule.
type route struct {
	name    name
	history history
	keys    keys
}

// routes are all rules that something was heard of. The zero value is ready for use.
type routes struct {
	known   atomic.Pointer[map[name]*route] // replaced, not changed
	second  atomic.Int64                    // that is not over yet
	rotated atomic.Int64                    // the second in which the keys' window began

	mu sync.Mutex // guards replacing known
}

// route returns that of n. It allocates only if n is new.
func (s *routes) route(n name) *route {
	if r := s.find(n); r != nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.find(n); r != nil {
		return r
	}
	known := maps.Clone(s.all())
	if len(known) >= mostRoutes {
		n = other
	}
	if known == nil {
		known = make(map[name]*route)
	}
	r := &route{name: n}
	known[n] = r
	s.known.Store(&known)
	return r
}

func (s *routes) all() map[name]*route {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return nil
}

// find returns the route of n, or if there are too many, of other; or nil.
func (s *routes) find(n name) *route {
	known := s.all()
	if r := known[n]; r != nil {
		return r
	}
	return known[other]
}

// roll ends the second that was, if it is over. Who notices first does so for all:
// nothing else was counted since.
func (s *routes) roll(now time.Time) {
	second, was := now.Unix(), s.second.Load()
	if second <= was || !s.second.CompareAndSwap(was, second) {
		return
	}
	for _, r := range s.all() {
		r.history.end(was)
	}
	since := s.rotated.Load()
	if over := (second - since) / int64(window/time.Second); over > 0 && s.rotated.CompareAndSwap(since, second) {
		for _, r := range s.all() {
			r.keys.rotate(over)
		}
	}
}
