package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics"
	"github.com/heedhttp/heed/serverside/rulefile"
)

func Example() {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, metrics.Options{})
	if err != nil {
		panic(err)
	}
	limiter, err := serverside.New(m.Instrument(serverside.Config{
		Rules:  []serverside.Rule{{Name: "address", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(2)}}},
		Exempt: []string{"/metrics"}, // Prometheus must see what happens
	}))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/users/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	h := limiter.Wrap(mux)

	for id := range 5 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", fmt.Sprint("/v1/users/", id), nil))
	}
	scrape := httptest.NewRecorder()
	h.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "rate_limit_exceeded_total") || strings.HasPrefix(line, "rate_limit_decisions_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// rate_limit_decisions_total{endpoint="/v1/",verdict="admitted"} 2
	// rate_limit_decisions_total{endpoint="/v1/",verdict="refused"} 3
	// rate_limit_decisions_total{endpoint="/v1/",verdict="trusted"} 0
	// rate_limit_decisions_total{endpoint="/v1/",verdict="uncounted"} 0
	// rate_limit_exceeded_total{endpoint="/v1/",strategy="address"} 3
}

// The rules of a file are counted like those of a program.
func Example_rulefile() {
	file, err := os.CreateTemp("", "rules*.yaml")
	if err != nil {
		panic(err)
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString("rules: [{name: address, pattern: /v1/, policies: 2/1m}]"); err != nil {
		panic(err)
	}
	var store quota.Store // if nil, this process; a redisstore.Store where there are several
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		panic(err)
	}
	env := rulefile.Env{Config: m.Instrument(serverside.Config{Store: store, Audit: serverside.LogAudit(nil)})}
	rules, err := rulefile.Watch(file.Name(), env)
	if err != nil {
		panic(err)
	}
	defer rules.Close()
	h := rules.Limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/users", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}
