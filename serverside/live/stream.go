package live

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// beat is how often there may be an event.
	beat = 250 * time.Millisecond

	// idleBeats is every how many there is one although nothing was counted: the
	// heartbeat, and what moves the time axis.
	idleBeats = 4

	// patience is how long a viewer may take to receive an event.
	patience = 10 * time.Second

	// longest is how long a stream lasts. Then the browser asks for another one, and
	// whoever guards the page is asked again.
	longest = 10 * time.Minute
)

// head is what a stream begins with: how many milliseconds a browser waits before it
// asks for another one.
const head = "retry: 2000\n\n"

// stream tells a viewer what happens, until he goes, does not read, or the server shuts
// down. There is nothing between him and what requests count: while he does not read, it
// is counted all the same, and he is told what is still known of it later.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	most := int64(p.MaxViewers)
	if most == 0 {
		most = 32
	}
	if !p.streams.enter(most) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer p.streams.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or nginx collects events
	h.Set("X-Content-Type-Options", "nosniff")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // Server.ReadTimeout is for requests; not all can do it
	if err := c.Flush(); err != nil {
		http.Error(w, "events cannot be sent: a handler in front of this one hides Flush", http.StatusInternalServerError)
		return
	}
	if r.Method != http.MethodHead && send(w, c, []byte(head)) == nil {
		p.follow(w, r, c)
	}
}

func (p *Page) follow(w http.ResponseWriter, r *http.Request, c *http.ResponseController) {
	v := viewer{page: p}
	tick, end := time.NewTicker(beat), time.NewTimer(longest)
	defer tick.Stop()
	defer end.Stop()
	shutdown := p.streams.shutdownOf(r)
	for idle := idleBeats; ; idle++ {
		if m := v.next(time.Now()); m.news || idle >= idleBeats {
			idle = 0
			if send(w, c, m.encode()) != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-shutdown:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// send sends b at once, or not at all.
func send(w http.ResponseWriter, c *http.ResponseController, b []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(patience)) // not all can do it
	if _, err := w.Write(b); err != nil {
		return err
	}
	return c.Flush()
}

// streams are those that are open.
type streams struct {
	open atomic.Int64

	mu      sync.Mutex                     // guards servers
	servers map[*http.Server]chan struct{} // closed when the server shuts down
}

func (s *streams) enter(most int64) bool {
	if s.open.Add(1) > most {
		s.leave()
		return false
	}
	return true
}

func (s *streams) leave() { s.open.Add(-1) }

// shutdownOf is closed when the server of r begins to shut down: it would wait for the
// stream otherwise.
func (s *streams) shutdownOf(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.servers[server]; ok {
		return c
	}
	if s.servers == nil {
		s.servers = make(map[*http.Server]chan struct{})
	}
	c := make(chan struct{})
	s.servers[server] = c
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(c) }))
	return c
}
