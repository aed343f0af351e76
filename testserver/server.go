package testserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/contract"
)

// A Server is a net/http server that answers as a script says and records every exchange. New,
// NewTCP and NewLimited make one. It ends with the test, and is safe for concurrent use.
type Server struct {
	// URL reaches the server through its Transport; that of NewTCP through any client. It has no
	// trailing slash.
	URL string

	// Key returns what limits and cool-downs apply to, for the Key of an Exchange. If nil, it is
	// the scheme and host of the URL. If the client or limiter uses something else, such as an API
	// key, set it before the first request.
	Key func(*http.Request) string

	t         testing.TB // the argument of New
	network   network
	transport *transport
	clauses   []contract.Clause
	log       recordedLog
	routes    *http.ServeMux // the scripts of Route
	fallback  *script        // for requests that no route matches
	stop      chan struct{}  // closed when the test ends

	https sync.Map // the clients' addresses of connections that are for https

	mu        sync.Mutex // guards the fields below
	conns     map[net.Conn]bool
	allClosed chan struct{} // if not nil, is closed when conns is empty
	checked   bool          // Check was called
}

// New starts a server in memory that answers with steps, one after the other, and after that with
// 200:
//
//	srv := testserver.New(t, testserver.Step{Status: 503, Times: 2}, testserver.Step{Body: "hello"})
//	client := &http.Client{Transport: srv.Transport()}
//
// Only its Transport reaches it, under any host name, by http and https. It works inside a synctest
// bubble and outside.
func New(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return start(t, newMemory(), "http://server.test", nil, validated(t, "New", steps))
}

// NewTCP is New on a port of the loopback interface, where any client reaches it. It does not work
// inside a synctest bubble.
func NewTCP(t testing.TB, steps ...Step) *Server {
	t.Helper()
	steps = validated(t, "NewTCP", steps)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return start(t, loopback{l}, "http://"+l.Addr().String(), nil, steps)
}

// NewLimited starts a server in memory to test a middleware. wrap gets a handler that answers 200,
// or as the scripts of Route say, and returns the handler to test:
//
//	srv := testserver.NewLimited(t, limiter.Wrap)
//
// A wrap may also ignore its argument and return any handler. Check then judges the server too.
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
		URL:     url,
		t:       t,
		network: n,
		clauses: contract.Client(),
		routes:  http.NewServeMux(),
		stop:    make(chan struct{}),
		conns:   make(map[net.Conn]bool),
	}
	s.transport = newTransport(n.dial, s.dialHTTPS)
	s.fallback = &script{stop: s.stop, steps: steps}
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
		_ = server.Serve(s.network) // its error is ErrServerClosed
	}()
	t.Cleanup(func() {
		close(s.stop)
		s.transport.closeAll()
		_ = server.Close()
		<-served
		_ = server.Close() // again, for connections accepted meanwhile
		if !s.wait(30 * time.Second) {
			t.Errorf("testserver: a handler still runs 30s after its connection was closed")
		}
		s.transport.closeAll() // again, for responses that came meanwhile
	})
}

// recorded adds recording to h.
func (s *Server) recorded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner := *r
		if _, https := s.https.Load(r.RemoteAddr); https {
			inner.TLS = &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, ServerName: hostname(r.Host)}
		}
		key := ""
		if s.Key != nil {
			key = s.Key(&inner)
		}
		rec := s.log.begin(w, &inner, key)
		inner.Body = rec.body(r.Body)
		returned := false
		defer func() { rec.end(r, returned) }()
		h.ServeHTTP(rec, &inner)
		returned = true
	})
}

// dialHTTPS dials a connection whose requests have https URLs. It is no TLS connection.
func (s *Server) dialHTTPS(ctx context.Context) (net.Conn, error) {
	conn, err := s.network.dial(ctx)
	if err == nil {
		s.https.Store(conn.LocalAddr().String(), true)
	}
	return conn, err
}

// hostname is host without its port.
func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

// play answers with the script of r's route.
func (s *Server) play(w http.ResponseWriter, r *http.Request) {
	if h, pattern := s.routes.Handler(r); pattern != "" {
		h.ServeHTTP(w, r)
		return
	}
	s.fallback.ServeHTTP(w, r)
}

// Transport returns a RoundTripper that sends every request to the server, whatever its host, and
// whether its URL is http or https. There is no TLS: for https the log has the https URL, and the
// handler sees a request whose TLS field is set, without certificates; that of the response is nil.
//
// It is always the same one, so connections are reused. It has a method CloseIdleConnections, and is
// closed when the test ends.
func (s *Server) Transport() http.RoundTripper { return s.transport }

// Route answers requests that match pattern with steps, one after the other, and after that with
// 200. Patterns are those of [http.ServeMux]. Requests that match none get the steps of New. An
// invalid pattern, or one that conflicts with another, fails the test.
func (s *Server) Route(pattern string, steps ...Step) {
	s.t.Helper()
	steps = validated(s.t, "Route "+pattern, steps)
	defer func() {
		if fault := recover(); fault != nil {
			s.t.Fatalf("testserver: Route: %v", fault)
		}
	}()
	s.routes.Handle(pattern, &script{stop: s.stop, steps: steps})
}

// Log returns all exchanges so far, in the order of their arrival. A response that was read to its
// end is complete there.
func (s *Server) Log() []contract.Exchange { return s.log.copy() }

// Check fails t if the log so far breaks a clause: one for clients, or with NewLimited also one for
// servers. A broken SHOULD fails it like a broken MUST. Filters choose the clauses: one is checked if
// every filter keeps it.
//
//	srv.Check(t)                                       // every clause
//	srv.Check(t, contract.MustOnly)                    // no SHOULD
//	srv.Check(t, contract.IETFOnly)                    // none of heed's own
//	srv.Check(t, contract.Except("client/idempotent")) // all but this one
//
// To add clauses of your own, call [contract.Check] with the Log.
//
// When t ends, it also fails if a response body from Transport was not closed.
func (s *Server) Check(t testing.TB, filters ...contract.Filter) {
	t.Helper()
	clauses := contract.Select(s.clauses, filters...)
	if len(clauses) == 0 {
		t.Fatalf("testserver: Check: the filters leave no clause")
	}
	if err := contract.Check(s.Log(), clauses...); err != nil {
		t.Errorf("%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checked {
		return
	}
	s.checked = true
	t.Cleanup(func() {
		if _, names := s.transport.unclosed(); len(names) > 0 {
			t.Errorf("testserver: response bodies that were not closed: %q", names)
		}
	})
}

// connState keeps track of the connections that have a goroutine.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
		s.https.Delete(conn.RemoteAddr().String())
		if s.allClosed != nil && len(s.conns) == 0 {
			close(s.allClosed)
			s.allClosed = nil
		}
	}
}

// wait reports whether the goroutines of all connections end within d.
func (s *Server) wait(d time.Duration) bool {
	s.mu.Lock()
	quiet := make(chan struct{})
	if len(s.conns) == 0 {
		close(quiet)
	} else {
		s.allClosed = quiet
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
