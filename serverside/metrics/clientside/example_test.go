package clientside_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/serverside/metrics/clientside"
)

func Example() {
	m, err := clientside.New(prometheus.DefaultRegisterer, clientside.Options{})
	if err != nil {
		log.Fatal(err)
	}
	budget := new(heed.LocalBudget)
	m.Watch(budget) // shows how many retries are left
	client := &http.Client{Transport: &heed.Transport{Budget: budget, Trace: m.Trace(heed.LogTrace(nil))}}
	http.Handle("/metrics", promhttp.Handler())

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "heed_attempts_total" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output: heed_attempts_total 1
}
