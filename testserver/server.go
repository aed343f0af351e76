package testserver

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/contract"
)

// A Server is a net/http server that answers by script and keeps a record. It
// is made by New, NewTCP or NewLimited, ends with the test, and is safe for
// concurrent use.
type Server struct {
	// URL reaches the server through its Transport, and that of NewTCP through
	// any other. It has no trailing slash.
	URL string

	// Key says what limits and cool-downs apply to, and becomes the Key of an
	// Exchange. If nil, the scheme and host of the URL. It is set before the
	// first request, where a client or a limiter goes by something else, such
	// as an API key.
	Key func(*http.Request) string

	t         testing.TB // that of New
	network   network
	transport *transport
	clauses   []contract.Clause
	log       log
	routes    *http.ServeMux // of scripts
	rest      *script        // for what no route matches
	stop      chan struct{}  // closed when the test ends

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	quiet  chan struct{} // if not nil, closed when conns is empty
	judged bool          // Check was called
}

// New starts a server in memory that answers with steps, one after the other,
// and then with 200. It works inside a synctest bubble and outside. It is
// reached through its Transport, and there under any host name.
func New(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return start(t, newMemory(), "http://server.test", nil, checked(t, "New", steps))
}

// NewTCP is like New, on a port of the loopback interface, where any client
// reaches it. It does not work inside a synctest bubble.
func NewTCP(t testing.TB, steps ...Step) *Server {
	t.Helper()
	steps = checked(t, "NewTCP", steps)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return start(t, loopback{l}, "http://"+l.Addr().String(), nil, steps)
}

// NewLimited starts a server in memory whose handler is wrap of one that
// answers 200, or by the scripts of Route. Its Check judges the server too. A
// wrap that ignores its argument puts any handler to the test.
func NewLimited(t testing.TB, wrap func(http.Handler) http.Handler) *Server {
	t.Helper()
	if wrap == nil {
		t.Fatalf("testserver: NewLimited: wrap is nil")
	}
	return start(t, newMemory(), "http://server.test", wrap, nil)
}

func start(t testing.TB, n network, url string, wrap func(http.Handler) http.Handler, steps []Step) *Server {
	t.Helper()
	s := &Server{
		URL:       url,
		t:         t,
		network:   n,
		transport: newTransport(n.dial),
		clauses:   contract.Client(),
		routes:    http.NewServeMux(),
		stop:      make(chan struct{}),
		conns:     make(map[net.Conn]bool),
	}
	s.rest = &script{stop: s.stop, steps: steps}
	h := http.Handler(http.HandlerFunc(s.play))
	if wrap != nil {
		h = wrap(h)
		s.clauses = slices.Concat(s.clauses, contract.Server())
	}
	s.serve(t, h)
	return s
}

// serve runs an http.Server until the test ends.
func (s *Server) serve(t testing.TB, h http.Handler) {
	server := &http.Server{Handler: s.recorded(h), ConnState: s.connState}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(s.network) // it is always closed by Cleanup
	}()
	t.Cleanup(func() {
		close(s.stop)
		s.transport.shut()
		_ = server.Close()
		<-served
		_ = server.Close() // once more, for what was accepted meanwhile
		if !s.wait(30 * time.Second) {
			t.Errorf("testserver: a handler goes on although its connection is closed")
		}
		s.transport.shut() // what was answered meanwhile
	})
}

// recorded puts the log around h.
func (s *Server) recorded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := ""
		if s.Key != nil {
			key = s.Key(r)
		}
		rec := s.log.begin(w, r, key)
		inner := *r
		inner.Body = rec.body(r.Body)
		returned := false
		defer func() { rec.end(r, returned) }()
		h.ServeHTTP(rec, &inner)
		returned = true
	})
}

// play answers by the script of the route that r takes.
func (s *Server) play(w http.ResponseWriter, r *http.Request) {
	if h, pattern := s.routes.Handler(r); pattern != "" {
		h.ServeHTTP(w, r)
		return
	}
	s.rest.ServeHTTP(w, r)
}

// Transport returns a transport that reaches the server, whatever the host of
// a URL. It is always the same one, so that connections are shared; it has
// CloseIdleConnections, and it is closed when the test ends.
func (s *Server) Transport() http.RoundTripper { return s.transport }

// Route answers what pattern matches with steps, one after the other, and then
// with 200. The patterns are those of [http.ServeMux]; what none of them
// matches gets the steps of New. A pattern that is not valid, or that conflicts
// with another, fails the test.
func (s *Server) Route(pattern string, steps ...Step) {
	s.t.Helper()
	steps = checked(s.t, "Route "+pattern, steps)
	defer func() {
		if fault := recover(); fault != nil {
			s.t.Fatalf("testserver: Route: %v", fault)
		}
	}()
	s.routes.Handle(pattern, &script{stop: s.stop, steps: steps})
}

// Log returns every exchange so far, in the order of their arrival. Who has
// read a response to its end finds all of it there.
func (s *Server) Log() []contract.Exchange { return s.log.copy() }

// Check holds the log so far against every clause that binds clients, and with
// NewLimited against those that bind servers too. A clause that is broken fails
// t, whatever its level; to choose among the clauses, give some of them and the
// Log to [contract.Check].
//
// When t ends, it also fails if the body of a response that came through
// Transport was not closed.
func (s *Server) Check(t testing.TB) {
	t.Helper()
	if err := contract.Check(s.Log(), s.clauses...); err != nil {
		t.Errorf("%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.judged {
		return
	}
	s.judged = true
	t.Cleanup(func() {
		if _, names := s.transport.left(); len(names) > 0 {
			t.Errorf("testserver: response bodies that nobody closed: %q", names)
		}
	})
}

// connState keeps the set of connections whose goroutines run.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
		if s.quiet != nil && len(s.conns) == 0 {
			close(s.quiet)
			s.quiet = nil
		}
	}
}

// wait reports whether all connections' goroutines end within d.
func (s *Server) wait(d time.Duration) bool {
	s.mu.Lock()
	quiet := make(chan struct{})
	if len(s.conns) == 0 {
		close(quiet)
	} else {
		s.quiet = quiet
	}
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-quiet:
		return true
	case <-timer.C:
		return false
	}
}
