// Command rules limits requests by the rules of a file, and reads the file again when it
// changes. It prints what to try, and runs until Ctrl-C:
//
//	go run ./examples/rules
//	go run ./examples/rules examples/rules/rules.yaml localhost:9000
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

const text = `Five requests at once, then one every two seconds:

	for i in 1 2 3 4 5 6; do curl -si http://%[1]s/v1/hello | grep -iE '^(http|rate|retry)'; done

Change %[2]s, and try again. Ctrl-C stops it.
`

func main() {
	file, address := "examples/rules/rules.yaml", "localhost:8080"
	if len(os.Args) == 3 {
		file, address = os.Args[1], os.Args[2]
	}
	rules, err := rulefile.Watch(file, rulefile.Env{Config: serverside.Config{Audit: serverside.LogAudit(nil)}})
	if err != nil {
		log.Fatal(err)
	}
	defer rules.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	server := &http.Server{Handler: rules.Limiter.Wrap(hello)}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Printf(text, listener.Addr(), file)
	if err := server.Serve(listener); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}
