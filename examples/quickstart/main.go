// Command quickstart limits as a file says: by address before it knows who asks, and by
// user afterwards. All replicas count in one Redis. It runs until Ctrl-C:
//
//	redis-server docs/redis.conf
//	export REDIS_URL=redis://heed:change-this-too@localhost:6379/0
//	go run ./examples/quickstart
//	curl -I -H 'X-Api-Key: s3cret' localhost:8080/v1/orders
//
// docs/operations.md explains it in seven steps.
package main

import (
	"cmp"
	"context"
	"log"
	"net/http"
	"os"

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
	log.Fatal(http.ListenAndServe(cmp.Or(os.Getenv("LISTEN"), "localhost:8080"), handler))
}

type userKey struct{} // of a request's context

func user(r *http.Request) string { name, _ := r.Context().Value(userKey{}).(string); return name }

func authenticate(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := map[string]string{"s3cret": "ann"}[r.Header.Get("X-Api-Key")]
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// serve knows nobody's password.
func serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/health" && user(r) == "" {
		w.WriteHeader(http.StatusUnauthorized)
	}
}
