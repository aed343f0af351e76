package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
)

// workers is how many requests are under way at the same time.
const workers = 8

// perform sends all requests of s with heed's client, and writes to w what happens.
func (s show) perform(ctx context.Context, w io.Writer, base http.RoundTripper, url string) error {
	r := &report{w: w, of: s.requests, began: time.Now()}
	client := &http.Client{Transport: &heed.Transport{Base: base, Trace: &heed.Trace{Decided: r.decided}}}
	jobs := make(chan bool)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range jobs {
				r.answered(s.ask(ctx, client, url))
			}
		})
	}
	for range s.requests {
		jobs <- true
	}
	close(jobs)
	all.Wait()
	return r.end(ctx)
}

// ask sends one request, and returns the status of the response; 0 if there is none.
func (s show) ask(ctx context.Context, client *http.Client, url string) int {
	r, err := http.NewRequestWithContext(ctx, s.method, url+s.path, nil)
	if err != nil {
		return 0
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A report has a line for each denial, and one for what was served since the last.
type report struct {
	of    int // requests
	began time.Time

	mu      sync.Mutex // guards what follows
	w       io.Writer
	served  int
	written int // of served
	denied  int
	lost    int
}

func (r *report) answered(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status != http.StatusOK {
		r.lost++
		return
	}
	r.served++
}

// decided is called with what heed does after an attempt.
func (r *report) decided(attempt heed.Attempt, v heed.Verdict, wait time.Duration) {
	if attempt.Response == nil || attempt.Response.StatusCode == http.StatusOK {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied++
	r.writeServed()
	next := fmt.Sprintf("All its requests wait for at least %.1f s", wait.Seconds())
	if v != heed.Again {
		next = "It is handed to the caller: " + v.String()
	}
	r.writeLine("%d, Retry-After: %s. %s", attempt.Response.StatusCode, attempt.Response.Header.Get("Retry-After"), next)
}

// writeServed writes how many were served, if there are more than the last time.
func (r *report) writeServed() {
	if r.served > r.written {
		r.writeLine("%d of %d served", r.served, r.of)
		r.written = r.served
	}
}

func (r *report) writeLine(format string, args ...any) {
	fmt.Fprintf(r.w, "%7.2f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// end writes the sums. It is an error if not all was served, unless ctx has ended.
func (r *report) end(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeServed()
	if ctx.Err() != nil {
		return nil
	}
	fmt.Fprintf(r.w, "\n%d requests served, %d attempts denied on the way, %d lost.\n", r.served, r.denied, r.lost)
	if r.lost > 0 {
		return errors.New("not all was served")
	}
	return nil
}
