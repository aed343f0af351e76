// Command migrating is a program that uses go-retryablehttp, and one new line. It needs
// nothing, and ends by itself:
//
//	cd examples/migrating && go run .
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

func main() {
	server := httptest.NewServer(busy())
	defer server.Close()

	client := retryablehttp.NewClient()
	client.RetryMax = 3
	client.RetryWaitMin = 50 * time.Millisecond
	client.HTTPClient.Timeout = 2 * time.Second
	client.Logger = hclog.New(&hclog.LoggerOptions{Output: os.Stdout, Level: hclog.Debug, DisableTime: true})

	retryable.Install(client, &heed.Transport{}) // the new line

	for i := range 3 {
		resp, err := client.Get(fmt.Sprintf("%s/orders/%d", server.URL, i+1))
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Printf("order %d: %s\n", i+1, resp.Status)
	}
}

// busy is a server that is down for its second request, and refuses its fourth one.
func busy() http.Handler {
	var requests atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch requests.Add(1) {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}
