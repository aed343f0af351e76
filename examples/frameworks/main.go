// Command frameworks runs a server of gin, echo or chi that limits requests and logins. It prints
// what to try, and runs until Ctrl-C:
//
//	cd examples/frameworks && go run . gin
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heedhttp/heed/examples/frameworks/chiserver"
	"github.com/heedhttp/heed/examples/frameworks/echoserver"
	"github.com/heedhttp/heed/examples/frameworks/ginserver"
)

const text = `After five wrong passwords an account is locked for your network:

	for i in 1 2 3 4 5 6; do curl -i -d user=ann -d password=guess http://localhost:8080/login; done
	curl -i http://localhost:8080/hello
	curl http://localhost:9090/metrics
`

var servers = map[string]func(prometheus.Registerer) (http.Handler, error){
	"gin":  ginserver.New,
	"echo": echoserver.New,
	"chi":  chiserver.New,
}

func main() {
	name := append(os.Args, "gin")[1]
	newServer, ok := servers[name]
	if !ok {
		log.Fatalf("no framework %q: there are gin, echo and chi", name)
	}
	server, err := newServer(prometheus.DefaultRegisterer)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	go func() { log.Fatal(http.ListenAndServe("localhost:9090", promhttp.Handler())) }() // not for the public
	log.Fatal((&http.Server{
		Addr: "localhost:8080", Handler: http.MaxBytesHandler(server, 1<<20),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}).ListenAndServe())
}
