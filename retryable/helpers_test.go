package retryable_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
	"github.com/heedhttp/heed/testserver"
)

// client is a go-retryablehttp client with its usual settings that reaches base, and
// returns the last response whatever its status.
func client(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient.Transport = base
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

// installed is the same with heed in it, and without a budget.
func installed(base http.RoundTripper) *retryablehttp.Client {
	c := client(base)
	retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
	return c
}

// request is a request of go-retryablehttp's.
func request(t testing.TB, method, url string, body any) *retryablehttp.Request {
	t.Helper()
	req, err := retryablehttp.NewRequest(method, url, body)
	require.NoError(t, err)
	return req
}

// content reads and closes the body of a response; it fails the test if there is none.
func content(t testing.TB, resp *http.Response, err error) (status int, body string) {
	t.Helper()
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// statuses returns what srv answered, one for each arrival.
func statuses(srv *testserver.Server) (all []int) {
	for _, e := range srv.Log() {
		all = append(all, e.Status)
	}
	return all
}

// paths returns what was asked of srv.
func paths(srv *testserver.Server) (all []string) {
	for _, e := range srv.Log() {
		all = append(all, e.Method+" "+strings.TrimPrefix(e.URL, srv.URL))
	}
	return all
}

// took returns how long f takes.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// A base is a RoundTripper made of a function. It counts what is done to it.
type base struct {
	f func(*http.Request) (*http.Response, error)

	mu     sync.Mutex // guards what follows
	seen   []arrival
	closes int // calls of CloseIdleConnections
}

// An arrival is a request as base got it.
type arrival struct {
	length int64
	body   string
}

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	a := arrival{length: req.ContentLength}
	if req.Body != nil {
		defer req.Body.Close()
		content, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		a.body = string(content)
	}
	b.mu.Lock()
	b.seen = append(b.seen, a)
	b.mu.Unlock()
	return b.f(req)
}

func (b *base) CloseIdleConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closes++
}

func (b *base) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen)
}

// always answers status, or fails with err.
func always(status int, err error) *base {
	return &base{f: func(req *http.Request) (*http.Response, error) { return answer(req, status), err }}
}

// inTurn answers one status after the other.
func inTurn(statuses ...int) *base {
	var mu sync.Mutex
	n := 0
	return &base{f: func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		return answer(req, statuses[min(n, len(statuses))-1]), nil
	}}
}

func answer(req *http.Request, status int) *http.Response {
	if status == 0 {
		return nil
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
}

// A tracked body knows how often it was closed.
type tracked struct {
	io.Reader
	closed int
}

func (b *tracked) Close() error {
	b.closed++
	return nil
}

// hinting adds a header to a status.
func hinting(status int, name, value string) testserver.Step {
	return testserver.Step{Status: status, Header: http.Header{name: {value}}, Body: "later"}
}
