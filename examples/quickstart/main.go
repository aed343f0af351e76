// Command quickstart limits requests by the rules of a file: by address before authentication,
// and by user after it. All replicas count in one Redis. docs/operations.md explains it. It runs
// until Ctrl-C:
//
//	redis-server docs/redis.conf
//	export REDIS_URL=redis://heed:change-this-too@localhost:6379/0
//	go run ./examples/quickstart
//	curl -I -H 'X-Api-Key: s3cret' localhost:8080/v1/orders
package main

import (
	"cmp"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

func main() {
	store, err := redisstore.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	rules, err := rulefile.Watch(cmp.Or(os.Getenv("RULES"), "examples/quickstart/rules.yaml"), rulefile.Env{
		Config: serverside.Config{Store: store, Audit: serverside.LogAudit(nil)},
		Keys:   map[string]serverside.Key{"user": serverside.KeyFunc(user)},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := rules.Limiter.WrapEarly(authenticate(rules.Limiter.Wrap(http.HandlerFunc(serve))))
	server := &http.Server{
		Addr: cmp.Or(os.Getenv("LISTEN"), "localhost:8080"), Handler: http.MaxBytesHandler(handler, 1<<20),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	log.Fatal(server.ListenAndServe())
}

var users = map[string]string{"s3cret": "ann"} // by API key

func user(r *http.Request) string { return users[r.Header.Get("X-Api-Key")] }

// authenticate fails every login.
func authenticate(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user(r) == "" && r.URL.Path != "/health" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func serve(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
