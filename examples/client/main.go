// Command client sends five requests at a steady pace, retries as the server asks, and logs all
// of it. It has a server of its own, and ends by itself:
//
//	go run ./examples/client
package main

import (
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

func main() {
	server := httptest.NewServer(busy())
	defer server.Close()

	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client := &http.Client{Transport: &heed.Transport{
		Pacer: pace.PerHost(5, 1), // five requests a second, no bursts
		Trace: heed.LogTrace(logger),
	}}
	for i := range 5 {
		resp, err := client.Get(fmt.Sprintf("%s/orders/%d", server.URL, i+1))
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Printf("order %d: %s\n", i+1, resp.Status)
	}
}

// busy returns a server that answers its second request with 503, and its fifth with 429.
func busy() http.Handler {
	var requests atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch requests.Add(1) {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 5:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}
