package docs_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/testserver"
)

// The functions of client.md.

// comeBack returns how long the server we call asks us to wait, if it limits us.
func comeBack(resp *http.Response, err error) (wait time.Duration, limited bool) {
	var overdue *heed.OverdueError
	switch {
	case errors.As(err, &overdue):
		return max(overdue.Wait, time.Second), true
	case errors.Is(err, pace.ErrQueueFull):
		return time.Second, true
	case err == nil && resp.StatusCode == http.StatusTooManyRequests:
		wait, _ := heed.RetryAfter(resp, time.Now())
		return max(wait, time.Second), true
	}
	return 0, false
}

// answer tells a caller of our own what became of our call.
func answer(w http.ResponseWriter, resp *http.Response, err error) {
	if wait, limited := comeBack(resp, err); limited {
		if resp != nil {
			resp.Body.Close()
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		http.Error(w, "bad gateway", http.StatusBadGateway)
	}
}

// getFromEither gets a path from the first host, and from the second one if the first is down.
func getFromEither(ctx context.Context, client *http.Client, path, first, second string) (*http.Response, error) {
	impatient := heed.WithRetryFunc(ctx, func(p heed.RetryPolicy) heed.RetryPolicy {
		p.MaxAttempts, p.MaxOutage = 2, -1 // the second host is better than waiting
		return p
	})
	req, err := http.NewRequestWithContext(impatient, "GET", first+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode < 500 || ctx.Err() != nil {
		return resp, err
	}
	if err == nil {
		resp.Body.Close()
	}
	if req, err = http.NewRequestWithContext(ctx, "GET", second+path, nil); err != nil {
		return nil, err
	}
	return client.Do(req)
}

func TestTheSecondHostAnswersWhileTheFirstIsDown(t *testing.T) {
	for name, down := range map[string]http.RoundTripper{"refused": refused, "503": unavailable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t)
				client := &http.Client{Transport: &heed.Transport{Base: function(func(req *http.Request) (*http.Response, error) {
					if req.URL.Host == "first.test" {
						return down.RoundTrip(req)
					}
					return srv.Transport().RoundTrip(req)
				})}}
				for range 100 {
					start := time.Now()
					resp, err := getFromEither(t.Context(), client, "/", "http://first.test", srv.URL)
					require.NoError(t, err)
					resp.Body.Close()
					assert.Equal(t, 200, resp.StatusCode)
					assert.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
				}
			})
		})
	}
}

type function func(*http.Request) (*http.Response, error)

func (f function) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Two hosts that are down.
var (
	refused = function(func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	})
	unavailable = function(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
	})
)

func TestAHandlerPassesTheWaitOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 90 * time.Second}, testserver.Step{Drop: true})
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		answered := func() (status int, retryAfter string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := client.Do(req)
			w := httptest.NewRecorder()
			if answer(w, resp, err); err == nil {
				resp.Body.Close()
			}
			return w.Code, w.Header().Get("Retry-After")
		}
		for range 2 { // the first gets the 429, the second an error
			status, retryAfter := answered()
			assert.Equal(t, 503, status)
			assert.Equal(t, "90", retryAfter)
		}
		time.Sleep(2 * time.Minute)
		status, retryAfter := answered()
		assert.Equal(t, 502, status)
		assert.Empty(t, retryAfter)
		status, retryAfter = answered()
		assert.Equal(t, 200, status)
		assert.Empty(t, retryAfter)
	})
	wait, limited := comeBack(nil, pace.ErrQueueFull)
	assert.True(t, limited)
	assert.Positive(t, wait)
}
