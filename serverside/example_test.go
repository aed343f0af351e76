package serverside_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// status returns the status of a request with this header.
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
	// RateLimit-Policy: "api";q=60;w=60;heed-algorithm=token-bucket
	// RateLimit: "api";r=59;t=1
	// X-RateLimit-Remaining: 59
}

// New returns all faults of a Config.
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

// Behind the proxy 10.0.0.1, the key is the address that the proxy appends to X-Forwarded-For. What
// a client writes there itself is ignored.
func ExampleClientIP() {
	key := serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:41234"
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 203.0.113.9")
	fmt.Println(key.Of(r))
	// Output:
	// 203.0.113.9
}

// Do not do this: a key that is the first address in X-Forwarded-For is chosen by the client, and
// so limits nothing.
func ExampleClientIP_pitfall() {
	wrong := func(r *http.Request) string { return r.Header.Get("X-Forwarded-For") }
	per := []quota.Policy{quota.PerHour(1)}

	for _, key := range []serverside.Key{
		serverside.KeyFunc(wrong), serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8")),
	} {
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

// Each token of each tenant has its own quota. The Store sees only a hash of the token.
func ExampleJoin() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{
			Name:     "tenant",
			Stage:    serverside.AfterAuth, // a handler in front of Wrap has checked the token
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

// Raise a limit while the server runs. What is spent stays spent.
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

// All policies of a rule apply.
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

// Write denials in your API's own format. The header fields are already set.
func ExampleConfig_deny() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerHour(1)}}},
		Deny: func(w http.ResponseWriter, _ *http.Request, d serverside.Denial) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"error":{"code":"rate_limited","policy":%q}}`, d.Policies[0])
		},
		Audit: func(e serverside.Event) {
			if e.Kind == serverside.Denied {
				fmt.Println(e.Kind, e.Rule)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	status(h, "/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After") != "", w.Body)
	// Output:
	// denied api
	// 429 true {"error":{"code":"rate_limited","policy":"api"}}
}

// Limit addresses before authentication, so that guessing credentials is limited too, and users
// after it.
func ExampleLimiter_WrapEarly() {
	type key struct{}
	authenticate := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, password, _ := r.BasicAuth()
			if password != "open sesame" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, name)))
		})
	}
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{
		{Name: "address", Policies: []quota.Policy{quota.PerHour(4)}},
		{
			Name: "user", Stage: serverside.AfterAuth, Policies: []quota.Policy{quota.PerHour(1)},
			Key: serverside.KeyFunc(func(r *http.Request) string { return r.Context().Value(key{}).(string) }),
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.WrapEarly(authenticate(limiter.Wrap(http.NotFoundHandler())))
	for _, password := range []string{"guess", "open sesame", "open sesame", "guess", "open sesame"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth("ali", password)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 404
	// 429
	// 401
	// 429
}

// Exempt the cluster's health check, and give programs on this machine a higher limit, which is
// logged.
func ExampleAllow() {
	limiter, err := serverside.New(serverside.Config{
		Rules:  []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerMinute(60)}}},
		Exempt: []string{"GET /healthz"},
		Allow: []serverside.Allow{{
			Name:     "this machine",
			Match:    serverside.Peers(serverside.Loopback()...),
			Policies: []quota.Policy{quota.PerMinute(6000)},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	for _, request := range []struct{ peer, path string }{
		{"192.0.2.1:1", "/healthz"}, {"192.0.2.1:1", "/"}, {"127.0.0.1:1", "/"},
	} {
		r, w := httptest.NewRequest("GET", request.path, nil), httptest.NewRecorder()
		r.RemoteAddr = request.peer
		h.ServeHTTP(w, r)
		fmt.Printf("%q\n", w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// ""
	// "\"api\";q=60;w=60;heed-algorithm=token-bucket"
	// "\"this machine\";q=6000;w=60;heed-algorithm=token-bucket"
}

// nginx sets X-Real-IP, so clients cannot.
func ExampleProxies() {
	key := serverside.Proxies{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Fields:  []string{"X-Real-IP"},
	}.ClientIP()

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Real-IP", "203.0.113.9")
	for _, peer := range []string{"10.0.0.1:41234", "198.51.100.7:41234"} {
		r.RemoteAddr = peer
		fmt.Println(key.Of(r))
	}
	// Output:
	// 203.0.113.9
	// 198.51.100.7
}

// Customers have a tier; one has limits of its own.
func ExampleLimitTable() {
	customer := func(r *http.Request) string { return r.Header.Get("X-Customer") } // set by authentication
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
		Name:  "api",
		Stage: serverside.AfterAuth,
		Key:   serverside.KeyFunc(customer),
		Tier:  func(r *http.Request) string { return r.Header.Get("X-Plan") },
		Tiers: []serverside.Tier{
			{Name: "free", Policies: []quota.Policy{quota.PerMinute(10), quota.PerHour(100)}},
			{Name: "pro", Policies: []quota.Policy{quota.PerMinute(100), quota.PerHour(10_000)}},
		},
		Limits: serverside.LimitTable{"acme": {PerMinute: 250}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	for _, header := range []http.Header{
		{"X-Customer": {"ann"}, "X-Plan": {"pro"}},
		{"X-Customer": {"bob"}, "X-Plan": {"gold"}},
		{"X-Customer": {"acme"}, "X-Plan": {"pro"}},
	} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header = header
		h.ServeHTTP(w, r)
		fmt.Println(w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// "api/1m";q=100;w=60;heed-algorithm=token-bucket, "api/1h";q=10000;w=3600;heed-algorithm=token-bucket
	// "api/1m";q=10;w=60;heed-algorithm=token-bucket, "api/1h";q=100;w=3600;heed-algorithm=token-bucket
	// "api/1m";q=250;w=60;heed-algorithm=token-bucket
}

// A key that clients can make up needs a second rule by address. New checks this.
func ExampleNew_ceiling() {
	byKey := serverside.Rule{
		Name: "key", Policies: []quota.Policy{quota.PerMinute(60)}, Key: serverside.Header("X-Api-Key"),
	}
	_, err := serverside.New(serverside.Config{Rules: []serverside.Rule{byKey}})
	fmt.Println(strings.ReplaceAll(err.Error(), ": ", ":\n"))

	byAddress := serverside.Rule{
		Name: "address", Policies: []quota.Policy{quota.PerMinute(600)}, Key: serverside.ClientIP(),
	}
	_, err = serverside.New(serverside.Config{Rules: []serverside.Rule{byKey, byAddress}})
	fmt.Println(err)
	// Output:
	// serverside:
	// Rules[0].Key:
	// is sent by the client, which can change it with every request:
	// add a rule by ClientIP for the same requests, or check the key first and set Stage to AfterAuth
	// <nil>
}

// Log denials, outages and other Events to your own logger. The number of records per second is
// limited.
func ExampleLogAudit() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "key" || a.Key == "wait" {
				return slog.Attr{}
			}
			return a
		},
	}))
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerHour(1)}}},
		Audit: serverside.LogAudit(logger),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	fmt.Println(status(h, "/v1/", nil), status(h, "/v1/", nil))
	// Output:
	// level=WARN msg=rate_limit.exceeded rule=api endpoint=/v1/ limit=1 status=429 policies=[api]
	// 404 429
}

// Send another body than a problem document.
func ExampleEnvelopeBody() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerHour(5)}}},
		Deny:  serverside.EnvelopeBody,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	for range 6 {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code == http.StatusTooManyRequests {
			seconds := w.Header().Get("Retry-After") // at most 720
			fmt.Println(strings.ReplaceAll(w.Body.String(), seconds, "so many"))
		}
	}
	// Output:
	// {"error":{"code":"rate_limited","message":"Too many requests. Retry after so many seconds."}}
}

// Five failed logins block the network for 12 seconds, and each further one for twice as long.
// Successful logins are not charged.
func ExampleLogins() {
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{
		serverside.Logins("login", "POST /login", serverside.FormValue("user")),
		{Name: "address", Pattern: "POST /login", Policies: []quota.Policy{quota.PerMinute(20)}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "open sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusOK)
	}))
	for _, password := range []string{"open sesame", "a", "b", "c", "d", "e", "open sesame"} {
		form := url.Values{"user": {"ali"}, "password": {password}}
		r, w := httptest.NewRequest("POST", "/login", strings.NewReader(form.Encode())), httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Retry-After") != "") // 12 seconds
	}
	// Output:
	// 200 false
	// 401 false
	// 401 false
	// 401 false
	// 401 false
	// 401 false
	// 429 true
}

// After the third failure within an hour, the login page asks for a challenge.
func ExamplePenalty() {
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
		Name:     "login",
		Pattern:  "POST /login",
		Policies: []quota.Policy{quota.PerHour(20)},
		Penalty: &serverside.Penalty{
			Strike: serverside.Unauthorized,
			After:  3,
			Within: time.Hour,
			OnViolations: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Challenge-Required", "true")
			},
		},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"challenge_required":%v}`, w.Header().Get("X-Challenge-Required") == "true")
	}))
	for range 4 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 401 {"challenge_required":false}
	// 401 {"challenge_required":false}
	// 401 {"challenge_required":true}
	// 401 {"challenge_required":true}
}

// A query costs one unit while it runs, and in the end one for each row. A cached response is free.
func ExampleRule_settle() {
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
		Name:     "query",
		Policies: []quota.Policy{quota.PerDay(1000)},
		Settle: func(r serverside.Response) int64 {
			rows, err := strconv.ParseInt(r.Header.Get("X-Rows"), 10, 64)
			switch {
			case serverside.FromCache(r):
				return 0
			case err != nil:
				return r.Cost
			default:
				return rows
			}
		},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Rows", r.FormValue("rows"))
		w.WriteHeader(http.StatusOK)
	}))
	for _, rows := range []string{"200", "5", "0"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/?rows="+rows, nil))
		fmt.Println(w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 999
	// 799
	// 794
}

// A handler may skip optional work when little of the quota is left.
func ExampleFromContext() {
	limiter, err := serverside.New(serverside.Config{
		Rules:     []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerHour(2)}}},
		InContext: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, ok := serverside.FromContext(r.Context())
		fmt.Println(d.Remaining, d.Rule, ok)
	}))
	status(h, "/", nil)
	status(h, "/", nil)
	// Output:
	// 1 api true
	// 0 api true
}

// Use the subject of a token as key, in a rule checked after authentication, which leaves the
// verified claims in the context.
func ExampleKeyFunc() {
	type claims struct{ Subject, Tenant string }
	type key struct{}
	verified := func(r *http.Request) claims {
		c, _ := r.Context().Value(key{}).(claims)
		return c
	}
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{
		{ // making more tokens does not help: the tenant has a limit too
			Name: "tenant", Stage: serverside.AfterAuth, Policies: []quota.Policy{quota.PerHour(3)},
			Key: serverside.KeyFunc(func(r *http.Request) string { return verified(r).Tenant }),
		},
		{
			Name: "subject", Stage: serverside.AfterAuth, Policies: []quota.Policy{quota.PerHour(2)},
			Key: serverside.KeyFunc(func(r *http.Request) string { return verified(r).Subject }),
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limiter.Wrap(http.NotFoundHandler())
	for _, subject := range []string{"ann", "ann", "ann", "bob", "cid"} {
		ctx := context.WithValue(context.Background(), key{}, claims{subject, "acme"})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		fmt.Println(subject, w.Code)
	}
	// Output:
	// ann 404
	// ann 404
	// ann 429
	// bob 404
	// cid 429
}

// Describe a rule for the documentation of an API.
func ExampleRule_Describe() {
	rule := serverside.Rule{
		Pattern: "GET /search", Policies: []quota.Policy{quota.PerMinute(30)},
		Key: serverside.Header("Authorization"),
	}
	fmt.Println(strings.ReplaceAll(rule.Describe(), ". ", ".\n"))
	// Output:
	// At most 30 in 1m of requests to GET /search, counted for each header Authorization that clients send.
	// Others get 429 Too Many Requests with Retry-After.
}
