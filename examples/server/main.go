// Command server admits five requests at once from each address, then one every two seconds. It
// has a page that shows them, prints what to try, and runs until Ctrl-C:
//
//	go run ./examples/server
//	go run ./examples/server localhost:9000
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
)

const text = `Five requests at once, then one every two seconds:

	curl -i http://%[1]s/v1/hello
	for i in 1 2 3 4 5 6; do curl -si http://%[1]s/v1/hello | grep -iE '^(http|rate|retry)'; done

Watch them at http://%[1]s/limits/; Ctrl-C stops it.
`

func main() {
	page := new(live.Page)
	limiter, err := serverside.New(page.Instrument(serverside.Config{
		Rules: []serverside.Rule{{
			Name: "api", Pattern: "/v1/",
			Policies: []quota.Policy{{Quota: 30, Window: time.Minute, Burst: 5}},
		}},
	}))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", append(os.Args[1:], "localhost:8080")[0])
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.Handle("/limits/", page) // put it behind authentication, or on a port of its own
	server := &http.Server{Handler: http.MaxBytesHandler(limiter.Wrap(mux), 64<<10), ReadTimeout: 10 * time.Second}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Printf(text, listener.Addr())
	if err := server.Serve(listener); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}
