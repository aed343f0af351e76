// Command batch sends a hundred jobs, ten a second. After Ctrl-C the requests in flight finish, and the next
// run sends the rest: batch.done lists the finished jobs. A server knows a repeated job by its Idempotency-Key.
//
//	go run ./examples/batch
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	stop, _ := signal.NotifyContext(context.Background(), os.Interrupt)
	send(heed.WithDrain(context.Background(), stop), http.DefaultTransport, server.URL, "batch.done")
}

// send sends the jobs that are not in the file, and adds them to it.
func send(ctx context.Context, base http.RoundTripper, url, name string) {
	done, _ := os.ReadFile(name) // missing the first time
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	patient := heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1}
	client := &http.Client{Transport: &heed.Transport{Base: base, Pacer: pace.PerHost(10, 1), Retry: patient}}
	var jobs sync.WaitGroup
	for i := range 100 {
		if id := fmt.Sprintf("job-%02d\n", i); !strings.Contains(string(done), id) {
			jobs.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(id))
				req.Header.Set("Idempotency-Key", strings.TrimSpace(id))
				switch resp, err := client.Do(req); {
				case errors.Is(err, heed.ErrNotSent): // left for the next run
				case err != nil:
					log.Print(err)
				case resp.Body.Close() == nil && resp.StatusCode == http.StatusOK:
					io.WriteString(io.MultiWriter(os.Stdout, file), id)
				default:
					log.Print(id, resp.Status)
				}
			})
		}
	}
	jobs.Wait()
}
