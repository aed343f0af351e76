package live

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	interval     = time.Second      // between two messages
	writeTimeout = 10 * time.Second // for a message

	// maxStream is how long a stream lasts. Then the browser asks for another one, and has
	// to get past whatever authenticates operators again.
	maxStream = 10 * time.Minute
)

// replaced is how a stream ends whose place a newer one has: live.js asks for no other.
const replaced = "event: replaced\ndata: {}\n\n"

// stream tells a viewer what happens, until the viewer goes, does not read, or has to make
// room, or the server shuts down. What happens while a viewer does not read is sent later,
// as far as it is known then.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or nginx collects events
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // Server.ReadTimeout is for requests; not all can do it
	if err := c.Flush(); err != nil {
		http.Error(w, "events cannot be sent: a handler in front of this one hides Flush", http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	limit := p.MaxViewers
	if limit <= 0 {
		limit = 32
	}
	place := p.streams.enter(limit)
	defer p.streams.leave(place)
	shutdown := p.streams.shutdownOf(r)
	tick, end := time.NewTicker(interval), time.NewTimer(maxStream)
	defer tick.Stop()
	defer end.Stop()
	v := viewer{page: p}
	for {
		if send(w, c, v.next(time.Now()).encode()) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-place:
			_ = send(w, c, []byte(replaced)) // it ends, sent or not
			return
		case <-end.C:
			return
		case <-shutdown:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// send sends b, and waits for no longer than writeTimeout.
func send(w http.ResponseWriter, c *http.ResponseController, b []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all can do it
	if _, err := w.Write(b); err != nil {
		return err
	}
	return c.Flush()
}

// streams are those that are open.
type streams struct {
	mu      sync.Mutex                     // guards what follows
	places  []chan struct{}                // the oldest first; closed for a newer one
	servers map[*http.Server]chan struct{} // closed when the server shuts down
}

// enter returns a place, which is closed when a newer stream needs it. It takes that of
// the oldest stream if there are limit of them.
func (s *streams) enter(limit int) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.places) >= limit {
		close(s.places[0])
		s.places = slices.Delete(s.places, 0, 1)
	}
	place := make(chan struct{})
	s.places = append(s.places, place)
	return place
}

// leave gives place back, if it was not taken.
func (s *streams) leave(place chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = slices.DeleteFunc(s.places, func(other chan struct{}) bool { return other == place })
}

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
