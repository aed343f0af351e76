// Package chiserver is a chi router inside a limiter.
package chiserver

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics"
)

// New returns a server that admits 60 requests a minute from each address, and limits guesses at
// passwords. Its metrics are registered with reg.
func New(reg prometheus.Registerer) (http.Handler, error) {
	counts, err := metrics.New(reg, metrics.Options{})
	if err != nil {
		return nil, err
	}
	limiter, err := serverside.New(counts.Instrument(serverside.Config{
		Key: serverside.ClientIP(), // behind proxies: ClientIP(their addresses...)
		Rules: []serverside.Rule{
			{Name: "address", Policies: []quota.Policy{quota.PerMinute(60)}},
			serverside.Logins("login", "POST /login", serverside.FormValue("user")),
		},
	}))
	if err != nil {
		return nil, err
	}
	router := chi.NewRouter()
	router.Use(middleware.Recoverer)
	router.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	router.Post("/login", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "correct horse" { // look the user up
			http.Error(w, "wrong user or password", http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusOK) // a success only if it is written
	})
	return limiter.Wrap(router), nil
}
