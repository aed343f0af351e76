package live_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
)

// Serve the page beside the limited handlers, for operators only.
func Example() {
	page := &live.Page{Title: "Limits of the orders API", Hosts: []string{"admin.example.com"}}
	limiter, err := serverside.New(page.Instrument(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)}}},
	}))
	if err != nil {
		panic(err)
	}
	api := http.NewServeMux()
	api.HandleFunc("/v1/orders", func(http.ResponseWriter, *http.Request) {})
	public := limiter.Wrap(api) // http.ListenAndServe(":8080", public)

	admin := http.NewServeMux()
	admin.Handle("/limits/", operatorsOnly(page)) // http.ListenAndServe("localhost:8081", admin)

	for _, h := range []http.Handler{public, admin} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/limits/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 404
	// 401
}

// operatorsOnly stands for whatever authenticates operators.
func operatorsOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}
