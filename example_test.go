package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

// busy returns a server that answers its first n requests with a 503.
func busy(n int, header ...string) *httptest.Server {
	served := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served++; served > n {
			fmt.Fprintf(w, "answer to request %d", served)
			return
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "busy")
	}))
}

func show(resp *http.Response, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(b))
}

func Example() {
	srv := busy(1, "Retry-After", "1")
	defer srv.Close()

	client := &http.Client{Transport: &heed.Transport{}}
	show(client.Get(srv.URL))
	// Output: 200 answer to request 2
}

// Ten requests a second from this process, and a retry budget that all processes share.
func Example_shared() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	client := &http.Client{Transport: &heed.Transport{
		Pacer:  pace.PerHost(10, 1),
		Budget: &redisstore.Budget{Client: rdb, Key: "orders-api"},
	}}
	show(client.Get("https://api.example.com/orders"))
}

// The server side: a limiter that announces its limits.
func Example_server() {
	mux := http.NewServeMux()
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)}}},
	})
	if err != nil {
		panic(err)
	}
	http.ListenAndServe(":8080", limiter.Wrap(mux))
}

// A deadline belongs into the context. If a wait would end after it, the server's response is
// returned at once.
func ExampleTransport_deadline() {
	srv := busy(1, "Retry-After", "50")
	defer srv.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)

	client := &http.Client{Transport: &heed.Transport{}}
	show(client.Do(req))
	// Output: 503 busy
}

// A POST is not retried after a 503, because the server may have acted on it. An Idempotency-Key
// makes that safe, if the server supports it.
func ExampleTransport_post() {
	srv := busy(1)
	defer srv.Close()
	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{
		Backoff: heed.Exponential(time.Millisecond, time.Second),
	}}}

	show(client.Post(srv.URL, "text/plain", strings.NewReader("order")))

	srv2 := busy(1)
	defer srv2.Close()
	req, _ := http.NewRequest("POST", srv2.URL, strings.NewReader("order"))
	req.Header.Set("Idempotency-Key", "8e03978e")
	show(client.Do(req))
	// Output:
	// 503 busy
	// 200 answer to request 2
}

// A breaker opens after three failures in a row. Then it refuses everything.
type breaker struct {
	base     http.RoundTripper
	failures int
}

func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.failures == 3 {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errors.New("the breaker is open")
	}
	resp, err := b.base.RoundTrip(req)
	if err != nil || resp.StatusCode >= 500 {
		b.failures++
	} else {
		b.failures = 0 // a 429 is no failure: the server works
	}
	return resp, err
}

// A circuit breaker goes around the Transport, where it counts only failures that retries did not
// fix. A limit does not open it.
func ExampleTransport_breaker() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/limited" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	client := &http.Client{Transport: &breaker{base: &heed.Transport{
		Retry: heed.RetryPolicy{Backoff: heed.Exponential(time.Millisecond, time.Second)},
		Board: heed.NoBoard, // or heed would pause for a server that refuses everything
	}}}
	get := func(path string) {
		resp, err := client.Get(srv.URL + path)
		if err != nil {
			fmt.Println(errors.Unwrap(err))
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	for range 4 {
		get("/limited")
	}
	for range 4 {
		get("/down")
	}
	// Output:
	// 429 Too Many Requests
	// 429 Too Many Requests
	// 429 Too Many Requests
	// 429 Too Many Requests
	// 503 Service Unavailable
	// 503 Service Unavailable
	// 503 Service Unavailable
	// the breaker is open
}

// A job waits for a server that is down, five minutes if need be. A user does not: the page then goes
// without what the server has.
func ExampleRetryPolicy_outage() {
	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{
		MaxOutage:  5 * time.Minute,
		MaxWait:    5 * time.Minute,
		MaxElapsed: 15 * time.Minute,
	}}}
	show(client.Get("https://api.example.com/jobs/1"))

	ctx := heed.WithRetryFunc(context.Background(), func(p heed.RetryPolicy) heed.RetryPolicy {
		p.MaxAttempts, p.MaxOutage = 2, -1
		return p
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://api.example.com/hints", nil)
	show(client.Do(req))
}

// A request that must not be retried has a policy of its own.
func ExampleWithRetry() {
	srv := busy(1)
	defer srv.Close()

	client := &http.Client{Transport: &heed.Transport{}}
	ctx := heed.WithRetry(context.Background(), heed.RetryPolicy{MaxAttempts: 1})
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	show(client.Do(req))
	// Output: 503 busy
}

// One field of the Transport's policy is changed; the others stay.
func ExampleWithRetryFunc() {
	srv := busy(1)
	defer srv.Close()

	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{Profiles: ratelimit.Vendors()}}}
	ctx := heed.WithRetryFunc(context.Background(), func(p heed.RetryPolicy) heed.RetryPolicy {
		p.MaxAttempts = 1 // Profiles stay
		return p
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	show(client.Do(req))
	// Output: 503 busy
}

// Some vendors refuse with another status than 429, or say so in the body. Profiles know them. On
// adds hosts of your own to a Profile.
func ExampleRetryPolicy_profiles() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Amzn-ErrorType", "ThrottlingException") // enough by itself
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"ThrottlingException"}`)
	}))
	defer srv.Close()

	local := ratelimit.Vendor("aws").On("127.0.0.1")
	client := &http.Client{Transport: &heed.Transport{
		Retry: heed.RetryPolicy{
			MaxAttempts: 2,
			Backoff:     func(heed.Attempt) time.Duration { return time.Millisecond },
			Profiles:    append(ratelimit.Vendors(), local),
		},
		Trace: &heed.Trace{Decided: func(a heed.Attempt, v heed.Verdict, _ time.Duration) {
			fmt.Println("attempt", a.Number, v)
		}},
	}}
	show(client.Post(srv.URL, "application/json", strings.NewReader("{}")))
	// Output:
	// attempt 1 again
	// attempt 2 out of attempts
	// 400 {"__type":"ThrottlingException"}
}

// A wait of 200 ms, doubled each time, plus up to 30 %. After a 429 without a hint it is a second.
func ExampleBackoff() {
	upward := func(b heed.Backoff) heed.Backoff {
		part := heed.FullJitter(func(a heed.Attempt) time.Duration { return b(a) * 3 / 10 })
		return func(a heed.Attempt) time.Duration { return b(a) + part(a) }
	}
	policy := heed.RetryPolicy{
		MaxAttempts: 3,
		Backoff:     upward(heed.Exponential(200*time.Millisecond, 30*time.Second)),
		Hint: func(resp *http.Response, now time.Time) (time.Duration, bool) {
			if wait, ok := heed.RetryAfter(resp, now); ok || resp.StatusCode != http.StatusTooManyRequests {
				return wait, ok
			}
			return time.Second, true
		},
	}
	wait := policy.Backoff(heed.Attempt{Number: 3})
	fmt.Println(800*time.Millisecond <= wait && wait <= 1040*time.Millisecond)
	// Output: true
}

func ExampleExponential() {
	backoff := heed.Exponential(time.Second, 30*time.Second)
	for n := range 7 {
		fmt.Print(backoff(heed.Attempt{Number: n + 1}), " ")
	}
	// Output: 1s 2s 4s 8s 16s 30s 30s
}

// Equal jitter waits for at least half of the time.
func ExampleEqualJitter() {
	backoff := heed.EqualJitter(heed.Exponential(time.Second, 30*time.Second))
	wait := backoff(heed.Attempt{Number: 3})
	fmt.Println(2*time.Second <= wait && wait <= 4*time.Second)
	// Output: true
}

func ExampleDecorrelated() {
	backoff := heed.Decorrelated(time.Second, 30*time.Second)
	wait := backoff(heed.Attempt{Number: 2, Waited: 4 * time.Second})
	fmt.Println(time.Second <= wait && wait <= 12*time.Second)
	// Output: true
}

// One budget for all clients of a worker pool: together they retry at most a tenth of their
// requests, and one request a second.
func ExampleLocalBudget() {
	budget := &heed.LocalBudget{}
	orders := &http.Client{Transport: &heed.Transport{Budget: budget}}
	refunds := &http.Client{Transport: &heed.Transport{Budget: budget}}
	_, _ = orders, refunds
	fmt.Println(budget.Balance("https://api.example.com")) // a new key's retries
	// Output: 3
}

// Each credential has its own key, so that one customer's limit delays no other customer.
func ExampleByCredential() {
	req, _ := http.NewRequest("GET", "https://API.example.com:443/v1/orders", nil)
	fmt.Println(heed.ByCredential(req))
	req.Header.Set("Authorization", "Bearer secret")
	fmt.Println(strings.Contains(heed.ByCredential(req), "secret"))
	// Output:
	// https://api.example.com
	// false
}

// If Base adds the credential, or it is in the path, a Key can take the customer from the context.
func ExampleTransport_key() {
	type customer struct{}
	client := &http.Client{Transport: &heed.Transport{
		Key: func(req *http.Request) string {
			name, _ := req.Context().Value(customer{}).(string)
			return heed.ByHost(req) + " " + name
		},
	}}
	srv := busy(0)
	defer srv.Close()

	ctx := context.WithValue(context.Background(), customer{}, "ann")
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	show(client.Do(req))
	// Output: 200 answer to request 1
}

// RetryAfter is useful outside the Transport too: here it turns a refusal into an error.
func ExampleRetryAfter() {
	exhausted := func(resp *http.Response, err error) error {
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return err
		}
		defer resp.Body.Close()
		wait, _ := heed.RetryAfter(resp, time.Now())
		return fmt.Errorf("rate limit exceeded after retries, come back in %v", wait)
	}
	resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"120"}}, Body: http.NoBody}
	fmt.Println(exhausted(resp, nil))
	// Output: rate limit exceeded after retries, come back in 2m0s
}

func ExampleLogTrace() {
	srv := busy(1)
	defer srv.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "host" {
				return slog.Attr{} // they differ from run to run
			}
			return a
		},
	}))
	client := &http.Client{Transport: &heed.Transport{
		Retry: heed.RetryPolicy{Backoff: heed.Exponential(time.Millisecond, time.Second)},
		Trace: heed.LogTrace(logger),
	}}
	show(client.Get(srv.URL + "?token=secret"))
	// Output:
	// level=WARN msg="request will be retried" method=GET status=503 verdict=again attempt=1 max=4 wait=1ms cause=backoff
	// 200 answer to request 2
}

// Count the verdicts of a call.
func ExampleWithTrace() {
	srv := busy(2)
	defer srv.Close()
	verdicts := map[heed.Verdict]int{}
	ctx := heed.WithTrace(context.Background(), &heed.Trace{
		Decided: func(_ heed.Attempt, v heed.Verdict, _ time.Duration) { verdicts[v]++ },
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{
		Backoff: heed.Exponential(time.Millisecond, time.Second),
	}}}
	show(client.Do(req))
	fmt.Println(verdicts)
	// Output:
	// 200 answer to request 3
	// map[final:1 again:2]
}

// Workers stop at a signal: requests under way are completed, and requests that were not sent are
// known, so that another process can do them.
func ExampleWithDrain() {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx := heed.WithDrain(context.Background(), stop)

	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel() // as a signal would
	}))
	defer srv.Close()
	client := &http.Client{Transport: &heed.Transport{
		Pacer: pace.PerHost(rate.Every(time.Hour), 1),
		Retry: heed.RetryPolicy{MaxWait: 24 * time.Hour, MaxElapsed: -1},
	}}
	var done, notSent, failed atomic.Int64
	var workers sync.WaitGroup
	for range 5 {
		workers.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL, nil)
			resp, err := client.Do(req)
			switch {
			case err == nil:
				resp.Body.Close()
				done.Add(1)
			case errors.Is(err, heed.ErrNotSent):
				notSent.Add(1) // back to the queue
			default:
				failed.Add(1) // it was sent, and failed
			}
		})
	}
	workers.Wait()
	fmt.Println(done.Load(), "done,", notSent.Load(), "not sent,", failed.Load(), "failed")
	// Output: 1 done, 4 not sent, 0 failed
}

// A request that would have to wait too long fails at once.
func ExampleOverdueError() {
	board := &heed.LocalBoard{}
	board.Post(context.Background(), "http://api.example.com", time.Hour, 0)
	client := &http.Client{Transport: &heed.Transport{Board: board}}

	_, err := client.Get("http://api.example.com/")
	var overdue *heed.OverdueError
	if errors.As(err, &overdue) {
		fmt.Println(overdue.Key, "for longer than", overdue.Left)
	}
	// Output: http://api.example.com for longer than 1m0s
}

// See what a call did: its attempts and waits.
func ExampleFromResponse() {
	srv := busy(1)
	defer srv.Close()
	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{
		Backoff: heed.Exponential(time.Millisecond, time.Second),
	}}}
	req, _ := http.NewRequestWithContext(heed.WithLedger(context.Background()), "GET", srv.URL, nil)
	resp, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	for _, e := range heed.FromResponse(resp).Entries {
		fmt.Println(e.Number, e.Status, e.Verdict, e.Waits)
	}
	// Output:
	// 1 503 again []
	// 2 200 final [{backoff 1ms}]
}

// A POST that may be retried, because the server acts only once for each key.
func ExampleRandomIdempotencyKey() {
	srv := busy(1)
	defer srv.Close()
	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{
		IdempotencyKey: heed.RandomIdempotencyKey,
		Backoff:        heed.Exponential(time.Millisecond, time.Second),
	}}}
	show(client.Post(srv.URL, "application/json", strings.NewReader(`{"amount": 7}`)))
	// Output: 200 answer to request 2
}
