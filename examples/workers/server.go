package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A server does jobs, limits who asks for them, and keeps a log of it.
type server struct {
	url  string
	log  journal
	http http.Server
}

// serve starts a server on a loopback port.
func serve(limit int64) (*server, error) {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "jobs", Policies: []quota.Policy{quota.PerSecond(limit)}}},
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + listener.Addr().String()}
	s.http.Handler = s.log.record(limiter.Wrap(http.HandlerFunc(doJob)))
	go s.http.Serve(listener)
	return s, nil
}

func doJob(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "done")
}

// close ends the server when it has answered what it was asked.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}
