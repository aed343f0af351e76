package profiles_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// Authentication has put the tenant into the request's context.
func ExampleForge() {
	type tokenKey struct{}
	limiter, err := serverside.New(profiles.Forge(profiles.Options{
		Token: serverside.KeyFunc(func(r *http.Request) string {
			token, _ := r.Context().Value(tokenKey{}).(string)
			return token
		}),
		Audit: func(serverside.Event) {},
	}))
	if err != nil {
		log.Fatal(err)
	}
	h := limiter.Wrap(http.NotFoundHandler())
	for range 6 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/login", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 404 4
	// 404 3
	// 404 2
	// 404 1
	// 404 0
	// 429 0
}

// Write a profile to a file, to change it and follow it by rulefile.Watch.
func ExampleOptions_Env() {
	options := profiles.Options{User: serverside.Header("X-User")}
	cfg, err := rulefile.Parse("api.yaml", profiles.File("api.yaml"), options.Env())
	if err != nil {
		log.Fatal(err)
	}
	for _, rule := range cfg.Rules {
		fmt.Println(rule.Name, rule.Policies[0].Quota, rule.Policies[0].Window)
	}
	// Output:
	// address 6000 1m0s
	// login 5 15m0s
	// register 5 15m0s
	// login_account 5 1m0s
	// query 100 1m0s
	// write 30 6s
	// upload 10 10m0s
}
