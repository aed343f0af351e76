// Command profiles runs one of the ready-made servers, forge, forja, universal, api or patterns,
// and shows on a page what happens. docs/profiles.md has their rules.
//
//	go run ./examples/profiles forge
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
	"github.com/heedhttp/heed/serverside/profiles"
)

const text = `Try these, and watch http://%[1]s/limits/ meanwhile. Ctrl-C stops it.

	for i in 1 2 3 4 5 6; do curl -si http://%[1]s/login -d user=ann | grep -iE '^(http|x-rate|rate|retry)'; done
	curl -s -o /dev/null -w '%%{http_code}\n' 'http://%[1]s/api/items?[1-110]' | sort | uniq -c
`

var configs = map[string]func(profiles.Options) serverside.Config{
	"forge": profiles.Forge, "forja": profiles.Forja, "universal": profiles.Universal,
	"api": profiles.API, "patterns": profiles.Patterns,
}

// answer fails every login.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusUnauthorized)
	}
	fmt.Fprintln(w, r.URL.Path)
}

func main() {
	at := flag.String("at", "localhost:8080", "`address` to listen on")
	flag.Parse()
	config, ok := configs[flag.Arg(0)]
	if !ok {
		log.Fatal("usage: profiles [-at ADDRESS] forge | forja | universal | api | patterns")
	}
	page, quiet := new(live.Page), func(serverside.Event) {} // the page shows the events
	limiter, err := serverside.New(page.Instrument(config(profiles.Options{Audit: quiet})))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *at)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/limits/", page) // in production, on a port of its own
	mux.Handle("/", limiter.WrapEarly(limiter.Wrap(http.HandlerFunc(answer))))
	fmt.Printf(text, listener.Addr())
	log.Fatal(http.Serve(listener, mux))
}
