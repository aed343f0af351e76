package clientside

import (
	"net/http"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/heedhttp/heed"
)

// A pause is the time of a request between two attempts, or before the first. A Transport
// tells in advance how long it means to wait. How long it did wait is known with the next
// verdict.
type pause struct {
	since   time.Time     // when it began
	cause   heed.Cause    // of what was decided after the attempt before; 0 if there was none
	decided time.Duration // how long that was to take
	cooled  bool          // a cool-down came on top of it
	paced   time.Duration // the part for the Pacer

	remove runtime.Cleanup
}

// split divides what is left of total without the Pacer's part: first is for the pause's own
// cause, and more for the cool-down that came on top. A part longer than decided without a
// cool-down is jitter: it has the same cause.
func (p *pause) split(total time.Duration) (first, more time.Duration) {
	rest := max(0, total-p.paced)
	switch {
	case !p.cooled && p.cause != 0:
		return rest, 0
	case !p.cooled:
		return 0, 0 // the body was read, say
	case p.cause == heed.CauseCoolDown:
		return 0, rest
	}
	first = min(p.decided, rest)
	return first, rest - first
}

// pauses are those of requests that wait now. No hook is called if a caller gives up: that
// pause is not counted, and is removed when the garbage collector frees the request.
type pauses struct {
	mu  sync.Mutex
	all map[weak.Pointer[http.Request]]*pause // guarded by mu
}

// change has f change the pause of a request. A new one began so long ago.
func (s *pauses) change(req *http.Request, ago time.Duration, f func(*pause)) {
	key := weak.Make(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[key]
	if p == nil {
		if s.all == nil {
			s.all = make(map[weak.Pointer[http.Request]]*pause)
		}
		p = &pause{since: time.Now().Add(-ago)}
		s.all[key] = p
		p.remove = runtime.AddCleanup(req, s.remove, key)
	}
	f(p)
}

func (s *pauses) remove(key weak.Pointer[http.Request]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

// take removes the pause of a request and returns it, or nil if there is none.
func (s *pauses) take(req *http.Request) *pause {
	key := weak.Make(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[key]
	if p != nil {
		p.remove.Stop() // or a request that is sent again and again would collect them
		delete(s.all, key)
	}
	return p
}
