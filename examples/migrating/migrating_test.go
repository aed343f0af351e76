package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
	"github.com/heedhttp/heed/testserver"
)

// A client is one that sends through base, before the migration or after it.
type client func(base http.RoundTripper) *http.Client

// call sends a request, and returns the statuses that the server answered.
func call(t *testing.T, c *http.Client, srv *testserver.Server, method string) ([]int, *http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, strings.NewReader("cargo"))
	require.NoError(t, err)
	last, err := c.Do(req)
	if last != nil {
		last.Body.Close()
	}
	var seen []int
	for _, e := range srv.Log() {
		seen = append(seen, e.Status)
	}
	return seen, last, err
}

func down() testserver.Step { return testserver.Step{Status: 503, Times: -1} }

func TestOneLineKeepsHclogAndTheSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		srv := testserver.New(t, testserver.Step{Status: 503}, testserver.Step{Status: 429, RetryAfter: time.Minute})
		c := newClient(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Debug, DisableTime: true}))
		retryable.Install(c, &heed.Transport{Base: srv.Transport()}) // the settings stay
		resp, err := c.Get(srv.URL + "/secret?key=secret")
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 2, strings.Count(out.String(), "[DEBUG] retrying request:"), out.String())
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "retrying") {
				assert.NotContains(t, line, "secret")
			}
		}
	})
}

func TestHclogIsSilentBelowItsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info, DisableTime: true})
		srv := testserver.New(t, testserver.Step{Status: 503}, testserver.Step{Status: 503}, down())
		c := &http.Client{Transport: &heed.Transport{
			Base: srv.Transport(), Trace: retryable.LogTrace(logger), Budget: heed.Unlimited,
			Retry: heed.RetryPolicy{MaxOutage: -1}, // a wait for the host is logged at Info
		}}
		_, resp, err := call(t, c, srv, "GET")
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
		assert.Contains(t, out.String(), "[WARN]  request not retried:")
	})
}

func TestAsBeforeDoesWhatGoRetryablehttpDoes(t *testing.T) {
	for name, install := range map[string]func(*retryablehttp.Client){
		"before": func(*retryablehttp.Client) {},
		"after":  asBefore,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, down())
				c := retryablehttp.NewClient()
				c.Logger, c.HTTPClient.Transport = nil, srv.Transport()
				install(c)
				seen, resp, err := call(t, c.StandardClient(), srv, "POST")
				assert.Equal(t, []int{503, 503, 503, 503, 503}, seen)
				assert.Nil(t, resp)
				assert.ErrorContains(t, err, "giving up after 5 attempt(s)")
			})
		})
	}
}

func TestTheSignerSignsEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503}, testserver.Step{Status: 503})
		c := newHTTPClient(hclog.NewNullLogger())
		c.Transport.(*heed.Transport).Base = signer{srv.Transport()}
		resp, err := c.Get(srv.URL)
		require.NoError(t, err)
		resp.Body.Close()
		var counts []string
		signatures := map[string]bool{}
		for _, e := range srv.Log() {
			counts = append(counts, e.Header.Get("X-Retry-Count"))
			signatures[e.Header.Get("X-Signature")] = true
		}
		assert.Equal(t, []string{"0", "1", "2"}, counts)
		assert.Len(t, signatures, 3)
	})
}

func TestFailsafeRetriesAPostAndGivesAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, down())
		seen, resp, err := call(t, failsafeBefore(srv.Transport()), srv, "POST")
		assert.Equal(t, []int{503, 503, 503, 503}, seen)
		assert.Nil(t, resp)
		assert.ErrorIs(t, err, retrypolicy.ErrExceeded)
	})
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, down())
		seen, resp, err := call(t, failsafeAfter(srv.Transport()), srv, "POST")
		require.NoError(t, err)
		assert.Equal(t, []int{503}, seen)
		assert.Equal(t, 503, resp.StatusCode)
	})
}

func TestRehttpRetriesAPostAndGivesTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, down())
		seen, resp, err := call(t, rehttpBefore(srv.Transport()), srv, "POST")
		require.NoError(t, err)
		assert.Equal(t, []int{503, 503, 503, 503}, seen)
		assert.Equal(t, 503, resp.StatusCode)
	})
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 409}, down())
		seen, resp, err := call(t, rehttpAfter(srv.Transport()), srv, "POST")
		require.NoError(t, err)
		assert.Equal(t, []int{409, 503}, seen)
		assert.Equal(t, 503, resp.StatusCode)
	})
}

func TestWhichRetryAfterEachLibraryWaitsFor(t *testing.T) {
	inAMinute := func() string { return time.Now().Add(time.Minute).UTC().Format(http.TimeFormat) }
	inSeconds := func() string { return "60" }
	for _, c := range []struct {
		name   string
		client client
		hint   func() string
		waits  bool
	}{
		{"failsafe, seconds", failsafeBefore, inSeconds, true},
		{"failsafe, a date", failsafeBefore, inAMinute, false},
		{"rehttp, seconds", rehttpBefore, inSeconds, false},
		{"heed for failsafe, seconds", failsafeAfter, inSeconds, true},
		{"heed for failsafe, a date", failsafeAfter, inAMinute, true},
		{"heed for rehttp, seconds", rehttpAfter, inSeconds, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, testserver.Step{Status: 429, Header: http.Header{"Retry-After": {c.hint()}}})
				begun := time.Now()
				seen, _, err := call(t, c.client(srv.Transport()), srv, "GET")
				require.NoError(t, err)
				assert.Equal(t, []int{429, 200}, seen)
				assert.Equal(t, c.waits, time.Since(begun) >= time.Minute)
			})
		})
	}
}

func TestEachLibraryBoundsEachAttempt(t *testing.T) {
	for name, c := range map[string]client{
		"failsafe": failsafeBefore, "heed for failsafe": failsafeAfter,
		"rehttp": rehttpBefore, "heed for rehttp": rehttpAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, testserver.Step{Delay: time.Minute})
				seen, resp, err := call(t, c(srv.Transport()), srv, "GET")
				require.NoError(t, err)
				assert.Equal(t, []int{0, 200}, seen)
				assert.Equal(t, 200, resp.StatusCode)
			})
		})
	}
}

func TestHeedTellsACancellationDuringAWait(t *testing.T) {
	slow := func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: rehttp.NewTransport(base,
			rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryStatuses(429)), rehttp.ConstDelay(time.Minute))}
	}
	for _, c := range []struct {
		name   string
		client client
		tells  bool
	}{{"rehttp", slow, false}, {"heed", rehttpAfter, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute, Times: -1})
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
				require.NoError(t, err)
				time.AfterFunc(5*time.Second, cancel)
				_, err = c.client(srv.Transport()).Do(req)
				require.Error(t, err)
				assert.Equal(t, c.tells, errors.Is(err, context.Canceled), "%v", err)
			})
		})
	}
}

func TestABreakerAroundHeedStaysShut(t *testing.T) {
	n := 0
	c := withBreaker(roundTripper(func(*http.Request) (*http.Response, error) {
		n++
		return nil, errors.New("unsupported protocol scheme")
	}))
	for _, want := range []error{nil, circuitbreaker.ErrOpen} {
		_, err := c.Get("http://api.example.com")
		require.Error(t, err)
		if want != nil {
			assert.ErrorIs(t, err, want)
		}
	}
	assert.Equal(t, 1, n)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
