package live

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	interval     = time.Second      // between messages
	writeTimeout = 10 * time.Second // for one message

	// maxStream is how long a stream lasts. Then the browser reconnects, and has to
	// authenticate again.
	maxStream = 10 * time.Minute
)

// replaced ends a stream in favour of a newer one. live.js does not reconnect after it.
const replaced = "event: replaced\ndata: {}\n\n"

// stream sends a viewer one message per interval, until the viewer disconnects, does not read,
// or is replaced, or the server shuts down. A viewer that reads slowly gets what it missed
// later, as far as it is still known.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer events
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // removes Server.ReadTimeout; some writers cannot
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
			_ = send(w, c, []byte(replaced)) // the stream ends in any case
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

// send sends b within writeTimeout.
func send(w http.ResponseWriter, c *http.ResponseController, b []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // some writers cannot
	if _, err := w.Write(b); err != nil {
		return err
	}
	return c.Flush()
}

// streams are the open streams.
type streams struct {
	mu      sync.Mutex                     // guards what follows
	places  []chan struct{}                // the oldest first; closed to end the stream
	servers map[*http.Server]chan struct{} // closed when the server shuts down
}

// enter returns a place for a stream, which is closed when the stream has to end. If there are
// limit streams, enter ends the oldest.
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

// leave frees place, unless it was closed.
func (s *streams) leave(place chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = slices.DeleteFunc(s.places, func(other chan struct{}) bool { return other == place })
}

// shutdownOf returns a channel that is closed when r's server starts to shut down. Shutdown
// would otherwise wait for the stream.
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
