package stage

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A Server does jobs for those whom a limiter lets through, and keeps a log of
// all that came.
type Server struct {
	URL  string
	log  journal
	http http.Server
}

// Limited returns a limiter that admits limit requests a second.
func Limited(limit int64) (func(http.Handler) http.Handler, error) {
	l, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "jobs", Policies: []quota.Policy{quota.PerSecond(limit)}}},
		Audit: func(serverside.Event) {}, // the journal tells
	})
	if err != nil {
		return nil, err
	}
	return l.Wrap, nil
}

// Serve starts a Server behind limiter on a loopback port.
func Serve(limiter func(http.Handler) http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "http://" + listener.Addr().String()}
	s.http.Handler = s.log.record(limiter(http.HandlerFunc(doJob)))
	go s.http.Serve(listener)
	return s, nil
}

func doJob(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "done")
}

// Log is what came up to now.
func (s *Server) Log() []Arrival { return s.log.soFar() }

// Close ends the server when it has answered what it was asked.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}
