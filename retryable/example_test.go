package retryable_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

// overloaded answers nothing but 503.
func overloaded() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}))
}

// The move from go-retryablehttp, in one line. The callers of client stay as they
// are; what they get when all attempts have failed is the server's last answer,
// where it was an error without one.
func ExampleInstall() {
	srv := overloaded()
	defer srv.Close()

	client := retryablehttp.NewClient()
	client.Logger = nil
	retryable.Install(client, &heed.Transport{})

	resp, err := client.Post(srv.URL+"/payments", "text/plain", []byte("10 EUR"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// POST /payments
	// 503 Service Unavailable
}

// One's own CheckRetry, but no request is repeated that the server may have
// acted upon and that is not safe to repeat.
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

// go-retryablehttp's backoff has no jitter. Here it is given one.
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
