package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"strconv"
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

// busy is a server that is busy for its first n requests.
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

// A pace of one's own, and a retry budget that all processes share.
func Example_shared() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	client := &http.Client{Transport: &heed.Transport{
		Pacer:  pace.PerHost(10, 1),
		Budget: &redisstore.Budget{Client: rdb, Key: "orders-api"},
	}}
	show(client.Get("https://api.example.com/orders"))
}

// The other half: a server that announces what this client keeps to.
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

// A deadline belongs into the context: a wait that does not fit before it is not
// begun, and the server's answer is returned instead.
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

// The pitfall: a POST is not repeated after a 503, because the server may have
// acted upon it. An Idempotency-Key, if the server knows it, makes it safe.
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

// A breaker opens after three failures in a row, and lets nothing pass then.
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
		b.failures = 0 // a 429 is no failure: the server works, and says when
	}
	return resp, err
}

// A circuit breaker goes around the Transport, where it counts only what retries could
// not mend. A limit does not open it.
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
		Board: heed.NoBoard, // or a server that refuses all would be left alone for longer and longer
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

// A request that must not wait can have a policy of its own.
func ExampleWithRetry() {
	srv := busy(1)
	defer srv.Close()

	client := &http.Client{Transport: &heed.Transport{}}
	ctx := heed.WithRetry(context.Background(), heed.RetryPolicy{MaxAttempts: 1})
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	show(client.Do(req))
	// Output: 503 busy
}

// Or change one thing of the policy that it has.
func ExampleWithRetryFunc() {
	srv := busy(1)
	defer srv.Close()

	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{Profiles: ratelimit.Vendors()}}}
	ctx := heed.WithRetryFunc(context.Background(), func(p heed.RetryPolicy) heed.RetryPolicy {
		p.MaxAttempts = 1 // and Profiles stay
		return p
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	show(client.Do(req))
	// Output: 503 busy
}

// What GitHub's GraphQL API and others say with a 200 or in a body is obeyed, too. An
// installation of your own is what you say it is.
func ExampleRetryPolicy_profiles() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Amzn-ErrorType", "ThrottlingException") // which counts even if the body is late
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

// Delays of 200 ms, doubled each time, and at most 30 % more; a 429 without a
// hint waits a second.
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

// Equal jitter waits at least half of the time.
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

// One budget for all the clients of a worker pool: together they send at most a
// tenth more than there are requests, and one a second.
func ExampleLocalBudget() {
	budget := &heed.LocalBudget{}
	orders := &http.Client{Transport: &heed.Transport{Budget: budget}}
	refunds := &http.Client{Transport: &heed.Transport{Budget: budget}}
	_, _ = orders, refunds
	fmt.Println(budget.Balance("https://api.example.com")) // retries, for a beginning
	// Output: 2
}

// One customer's limit stops no other: whose it is, the credential says.
func ExampleByCredential() {
	req, _ := http.NewRequest("GET", "https://API.example.com:443/v1/orders", nil)
	fmt.Println(heed.ByCredential(req))
	req.Header.Set("Authorization", "Bearer secret")
	fmt.Println(strings.Contains(heed.ByCredential(req), "secret"))
	// Output:
	// https://api.example.com
	// false
}

// Where the credential is added in Base, or is in the path, a Key takes the customer from the
// context.
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

// In a reverse proxy each user has a cool-down of their own, and who is held back is told
// 429 and when to come back, not 502.
func ExampleTransport_reverseProxy() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer greedy" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	target, _ := url.Parse(api.URL)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &heed.Transport{Retry: heed.RetryPolicy{MaxWait: 5 * time.Second}},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var overdue *heed.OverdueError
			if errors.As(err, &overdue) {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(overdue.Wait.Seconds()))))
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	front := httptest.NewServer(proxy)
	defer front.Close()

	for _, user := range []string{"greedy", "greedy", "modest"} {
		req, _ := http.NewRequest("GET", front.URL, nil)
		req.Header.Set("Authorization", "Bearer "+user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(user, resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	// Output:
	// greedy 429 600
	// greedy 429 600
	// modest 200
}

// RetryAfter is of use outside the Transport too: here it makes an error of a
// refusal, for callers that want one.
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
				return slog.Attr{} // which change from run to run
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

// What the Transport decided, counted.
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

// A pool of workers is told to stop: what was sent is answered, and what was not sent is known,
// so that another process can do it.
func ExampleWithDrain() {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx := heed.WithDrain(context.Background(), stop)

	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel() // as the signal does
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
				failed.Add(1) // sent, and its error is known
			}
		})
	}
	workers.Wait()
	fmt.Println(done.Load(), "done,", notSent.Load(), "not sent,", failed.Load(), "failed")
	// Output: 1 done, 4 not sent, 0 failed
}

// A request that may not wait for its turn fails at once.
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

// What became of a call: what was sent, and what was waited for.
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

// A POST that may be repeated, because the server acts upon each key only once.
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
