package retryable_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

// overloaded prints each request, and answers 503.
func overloaded() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}))
}

// The move from go-retryablehttp, in one line. The settings and the callers of client stay
// as they are. A POST is no longer repeated after a 503: the server may have acted upon it.
func ExampleInstall() {
	srv := overloaded()
	defer srv.Close()

	client := retryablehttp.NewClient()
	client.RetryMax = 2
	client.RetryWaitMin = time.Millisecond
	client.Logger = nil
	retryable.Install(client, &heed.Transport{})

	_, err := client.Get(srv.URL + "/orders")
	fmt.Println(strings.ReplaceAll(err.Error(), srv.URL, ""))
	_, err = client.Post(srv.URL+"/payments", "text/plain", []byte("10 EUR"))
	fmt.Println(strings.ReplaceAll(err.Error(), srv.URL, ""))
	// Output:
	// GET /orders
	// GET /orders
	// GET /orders
	// GET /orders giving up after 3 attempt(s)
	// POST /payments
	// POST /payments giving up after 1 attempt(s): not idempotent
}

// To have CheckRetry alone decide, set If.
func ExampleInstall_checkRetryAlone() {
	srv := overloaded()
	defer srv.Close()

	client := retryablehttp.NewClient()
	client.RetryMax = 1
	client.RetryWaitMin = time.Millisecond
	client.Logger = nil
	retryable.Install(client, &heed.Transport{
		Retry: heed.RetryPolicy{If: retryable.If(client.CheckRetry)},
	})

	_, err := client.Post(srv.URL+"/payments", "text/plain", []byte("10 EUR"))
	fmt.Println(err != nil)
	// Output:
	// POST /payments
	// POST /payments
	// true
}

// To get the last response instead of an error, use go-retryablehttp's own ErrorHandler.
func ExampleInstall_lastResponse() {
	srv := overloaded()
	defer srv.Close()

	client := retryablehttp.NewClient()
	client.RetryMax = 0
	client.Logger = nil

	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	retryable.Install(client, &heed.Transport{})

	resp, err := client.Get(srv.URL + "/orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// GET /orders
	// 503 Service Unavailable
}

// A heed.Transport that logs to what a retryablehttp.Client would log to: an hclog.Logger,
// say, or a *log.Logger.
func ExampleLogTrace() {
	logger := log.New(os.Stdout, "", 0)
	client := &http.Client{Transport: &heed.Transport{
		Base:  &recovering{},
		Retry: heed.RetryPolicy{Backoff: heed.Exponential(10*time.Millisecond, time.Second)},
		Trace: retryable.LogTrace(logger),
	}}

	resp, err := client.Get("http://api.example.com/orders?token=secret")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// [DEBUG] retrying request method=GET host=api.example.com status=503 attempt=1 max=4 wait=10ms cause=backoff
	// [DEBUG] retrying request method=GET host=api.example.com status=503 attempt=2 max=4 wait=20ms cause=backoff
}

// A recovering is a RoundTripper that answers 503 two times, and then 200.
type recovering struct{ requests int }

func (r *recovering) RoundTrip(req *http.Request) (*http.Response, error) {
	status := http.StatusOK
	if r.requests++; r.requests <= 2 {
		status = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
}

// A CheckRetry and heed.Worthwhile: what both want is repeated.
func ExampleIf() {
	noMaintenance := func(_ context.Context, resp *http.Response, err error) (bool, error) {
		return err != nil || resp.Header.Get("X-Maintenance") == "", nil
	}
	wanted := retryable.If(noMaintenance)
	policy := heed.RetryPolicy{
		If: func(a heed.Attempt) bool { return wanted(a) && heed.Worthwhile(a) },
	}

	for _, method := range []string{"GET", "POST"} {
		req, _ := http.NewRequest(method, "http://api.example.com/things", nil)
		resp := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}}
		fmt.Println(method, policy.If(heed.Attempt{Number: 1, Request: req, Response: resp}))
	}
	// Output:
	// GET true
	// POST false
}

// go-retryablehttp's DefaultBackoff has no jitter. Here it gets one.
func ExampleBackoff() {
	backoff := retryable.Backoff(retryablehttp.DefaultBackoff, time.Second, 30*time.Second)
	policy := heed.RetryPolicy{Backoff: heed.EqualJitter(backoff)}

	for n := 1; n <= 3; n++ {
		wait := policy.Backoff(heed.Attempt{Number: n})
		fmt.Println(n, backoff(heed.Attempt{Number: n}), wait >= backoff(heed.Attempt{Number: n})/2)
	}
	// Output:
	// 1 1s true
	// 2 2s true
	// 3 4s true
}
