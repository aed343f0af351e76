package metrics_test

import (
	"fmt"
	"log"
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
		log.Fatal(err)
	}
	limiter, err := serverside.New(m.Instrument(serverside.Config{
		Rules:  []serverside.Rule{{Name: "address", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(2)}}},
		Exempt: []string{"/metrics"}, // scrapes are not limited
	}))
	if err != nil {
		log.Fatal(err)
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

// Rules in a file: Instrument the Config of the rulefile.Env.
func Example_rulefile() {
	file, err := os.CreateTemp("", "rules*.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString("rules: [{name: address, pattern: /v1/, policies: 2/1m}]"); err != nil {
		log.Fatal(err)
	}
	var store quota.Store // nil keeps counts in this process; use a redisstore.Store to share them
	m, err := metrics.New(prometheus.DefaultRegisterer, metrics.Options{})
	if err != nil {
		log.Fatal(err)
	}
	env := rulefile.Env{Config: m.Instrument(serverside.Config{Store: store, Audit: serverside.LogAudit(nil)})}
	rules, err := rulefile.Watch(file.Name(), env)
	if err != nil {
		log.Fatal(err)
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
