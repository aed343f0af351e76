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

// workers is how many requests are on their way at the same time.
const workers = 8

// perform has heed's client send all requests of s, and tells of it as it happens.
func (s show) perform(ctx context.Context, w io.Writer, url string) error {
	a := &account{w: w, of: s.requests, began: time.Now()}
	base := &http.Transport{MaxIdleConnsPerHost: workers}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &heed.Transport{Base: base, Trace: &heed.Trace{Decided: a.decided}}}
	numbers := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := range numbers {
				a.answered(s.ask(ctx, client, url, n))
			}
		})
	}
	for n := range s.requests {
		numbers <- n
	}
	close(numbers)
	all.Wait()
	return a.end(ctx)
}

// ask sends one request, and returns its status; 0 if there is none.
func (s show) ask(ctx context.Context, client *http.Client, url string, n int) int {
	r, err := http.NewRequestWithContext(ctx, s.method, url+s.path, nil)
	if err != nil {
		return 0
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	if s.roams {
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n%250))
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// An account is what has happened so far. It has a line for each denial, and one for
// what was served since.
type account struct {
	of    int
	began time.Time

	mu     sync.Mutex // guards what follows
	w      io.Writer
	served int
	told   int // of served
	denied int
	lost   int
}

func (a *account) answered(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if status != http.StatusOK {
		a.lost++
		return
	}
	a.served++
}

// decided is heed's word on an attempt.
func (a *account) decided(attempt heed.Attempt, v heed.Verdict, wait time.Duration) {
	if attempt.Response == nil || attempt.Response.StatusCode == http.StatusOK {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied++
	a.catchUp()
	h := attempt.Response.Header
	a.say("%d, Retry-After: %s. %s", attempt.Response.StatusCode, h.Get("Retry-After"), consequence(v, wait))
}

func consequence(v heed.Verdict, wait time.Duration) string {
	if v != heed.Again {
		return "It is handed to the caller: " + v.String()
	}
	return fmt.Sprintf("All its requests wait for at least %.1f s", wait.Seconds())
}

// catchUp tells what was served since it was last told.
func (a *account) catchUp() {
	if a.served > a.told {
		a.say("%d of %d served", a.served, a.of)
		a.told = a.served
	}
}

func (a *account) say(format string, args ...any) {
	fmt.Fprintf(a.w, "%7.2f s  %s\n", time.Since(a.began).Seconds(), fmt.Sprintf(format, args...))
}

// end sums up. What was not served is an error, unless somebody has ended it.
func (a *account) end(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.catchUp()
	if ctx.Err() != nil {
		return nil
	}
	fmt.Fprintf(a.w, "\n%d requests served, %d attempts denied on the way, %d lost.\n", a.served, a.denied, a.lost)
	if a.lost > 0 {
		return errors.New("not all was served")
	}
	return nil
}
