// Command profiles starts one of the five ready-made servers, shows what heed's client
// does against it, and says what to try. Then it serves until Ctrl-C:
//
//	go run ./examples/profiles forge
//	go run ./examples/profiles -at localhost:9000 patterns
//	go run ./examples/profiles -once api
//
// The others are forja, universal and api. With REDIS_URL in the environment Redis
// counts, and this process otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"

	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
	"github.com/heedhttp/heed/serverside/profiles"
)

func main() {
	log.SetFlags(0)
	at := flag.String("at", "localhost:8080", "where to listen")
	once := flag.Bool("once", false, "end when the client has ended")
	flag.Usage = usage
	flag.Parse()
	shown, ok := shows[flag.Arg(0)]
	if flag.NArg() != 1 || !ok {
		usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, shown, *at, *once); err != nil {
		log.Fatal("profiles: ", err)
	}
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(),
		"usage: profiles [-at ADDRESS] [-once] forge | forja | universal | api | patterns\n")
	flag.PrintDefaults()
}

// run serves until ctx ends, or if once, until the client has.
func run(ctx context.Context, w io.Writer, shown show, at string, once bool) error {
	handler, err := serve(shown)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	shown.introduce(w, listener.Addr())
	base := &http.Transport{MaxIdleConnsPerHost: workers}
	defer base.CloseIdleConnections()
	if err := shown.perform(ctx, w, base, "http://"+listener.Addr().String()); err != nil || once {
		server.Close()
		return err
	}
	shown.suggest(w, listener.Addr())
	if err := <-ended; err != http.ErrServerClosed {
		return err
	}
	return nil
}

// serve returns the server: a profile around authentication, and a page that shows it.
func serve(shown show) (http.Handler, error) {
	o := profiles.Options{
		Proxies: serverside.Proxies{Trusted: serverside.Loopback()}, // so that curl can play any client
		Limits:  serverside.LimitTable{serverside.HashKey("X-Api-Key", "small"): {PerMinute: 5}},
		Tier:    tier,
		Audit:   func(serverside.Event) {}, // the page shows it
	}
	if os.Getenv("REDIS_URL") != "" {
		store, err := redisstore.FromEnv()
		if err != nil {
			return nil, err
		}
		o.Store = store
	}
	cfg, err := shown.config(o)
	if err != nil {
		return nil, err
	}
	page := new(live.Page)
	limiter, err := serverside.New(page.Instrument(cfg))
	if err != nil {
		return nil, err
	}
	limited := limiter.WrapEarly(authenticate(limiter.Wrap(http.HandlerFunc(answer))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/limits/") { // in production, on a port of its own
			page.ServeHTTP(w, r)
			return
		}
		limited.ServeHTTP(w, r) // however the path is written
	}), nil
}
