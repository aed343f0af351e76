package serverside_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// status is what a client with this header is answered.
func status(h http.Handler, target string, header http.Header) int {
	r := httptest.NewRequest("GET", target, nil)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w := httptest.NewRecorder()
	limiter.Wrap(mux).ServeHTTP(w, httptest.NewRequest("GET", "/v1/hello", nil))
	fmt.Println(w.Code)
	fmt.Println("RateLimit-Policy:", w.Header().Get("RateLimit-Policy"))
	fmt.Println("RateLimit:", w.Header().Get("RateLimit"))
	fmt.Println("X-RateLimit-Remaining:", w.Header().Get("X-RateLimit-Remaining"))
	// Output:
	// 200
	// RateLimit-Policy: "api";q=60;w=60
	// RateLimit: "api";r=59;t=1
	// X-RateLimit-Remaining: 59
}

// All faults of a Config are found at once, and named.
func ExampleNew_faults() {
	_, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{
			{Name: "api", Pattern: "GET", Policies: []quota.Policy{quota.PerMinute(60)}},
			{Name: "login", Pattern: "POST /login", Policies: []quota.Policy{quota.PerHour(0)}},
		},
	})
	fmt.Println(err)
	// Output:
	// serverside: Rules[0].Pattern: parsing "GET": at offset 0: host/path missing /
	// serverside: Rules[1].Policies[0].Quota: is 0: must be at least 1
}

// Behind a proxy, whose address is 10.0.0.1, clients are told apart by what the
// proxy appends to X-Forwarded-For. What a client writes there itself does not
// count.
func ExampleClientIP() {
	key := serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:41234"
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 203.0.113.9")
	fmt.Println(key(r))
	// Output:
	// 203.0.113.9
}

// Do not do this: whoever takes the first address in X-Forwarded-For, from
// anybody, lets clients choose their key, and so has no limit.
func ExampleClientIP_pitfall() {
	wrong := func(r *http.Request) string { return r.Header.Get("X-Forwarded-For") }
	per := []quota.Policy{quota.PerHour(1)}

	for _, key := range []serverside.KeyFunc{wrong, serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))} {
		limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{Policies: per, Key: key}}})
		if err != nil {
			fmt.Println(err)
			return
		}
		h := limiter.Wrap(http.NotFoundHandler())
		var codes []int
		for _, invented := range []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"} {
			codes = append(codes, status(h, "/", http.Header{"X-Forwarded-For": {invented}}))
		}
		fmt.Println(codes)
	}
	// Output:
	// [404 404 404]
	// [404 429 429]
}

// Each tenant has a quota for each of its tokens. Neither is stored as it is.
func ExampleJoin() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{
			Name:     "tenant",
			Policies: []quota.Policy{quota.PerMinute(1)},
			Key:      serverside.Join(serverside.Header("X-Tenant"), serverside.Header("Authorization")),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	token := http.Header{"X-Tenant": {"acme"}, "Authorization": {"Bearer one"}}
	other := http.Header{"X-Tenant": {"acme"}, "Authorization": {"Bearer two"}}
	fmt.Println(status(h, "/", token), status(h, "/", token), status(h, "/", other))
	// Output:
	// 404 429 404
}

// A limit is raised while the server runs. What is spent stays spent.
func ExampleLimiter_Reconfigure() {
	perHour := func(n int64) serverside.Config {
		return serverside.Config{Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerHour(n)}}}}
	}
	limiter, err := serverside.New(perHour(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	fmt.Println(status(h, "/", nil), status(h, "/", nil), status(h, "/", nil))

	fmt.Println(limiter.Reconfigure(perHour(0)))
	fmt.Println(limiter.Reconfigure(perHour(3)))
	fmt.Println(status(h, "/", nil), status(h, "/", nil))
	// Output:
	// 404 404 429
	// serverside: Rules[0].Policies[0].Quota: is 0: must be at least 1
	// <nil>
	// 404 429
}

// All policies of a rule apply. Logins are limited also while the Store fails.
func ExampleRule() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{
			{
				Name:     "search",
				Pattern:  "GET /search",
				Policies: []quota.Policy{quota.PerSecond(5), quota.PerDay(1000)},
				Cost:     func(r *http.Request) int64 { return int64(len(r.URL.Query()["q"])) },
			},
			{
				Name:         "login",
				Pattern:      "POST /login",
				Policies:     []quota.Policy{quota.PerHour(5)},
				OnStoreError: serverside.FailLocal,
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w := httptest.NewRecorder()
	limiter.Wrap(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/search?q=a&q=b", nil))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// "search/1s";r=3;t=1, "search/24h";r=998;t=87
}

// A denial in the words of one's own API. Its header is already written.
func ExampleConfig_deny() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerHour(1)}}},
		Deny: func(w http.ResponseWriter, _ *http.Request, d serverside.Denial) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"error":{"code":"rate_limited","policy":%q}}`, d.Policies[0])
		},
		Audit: func(e serverside.Event) { fmt.Println(e.Kind, e.Rule) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	status(h, "/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	// Output:
	// denied api
	// 429 3600 {"error":{"code":"rate_limited","policy":"api"}}
}
