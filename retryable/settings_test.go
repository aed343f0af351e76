package retryable_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
	"github.com/heedhttp/heed/testserver"
)

func TestTwoClientsOfOneTransportKeepTheirSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{}
		bases := []*base{always(503, nil), always(503, nil)}
		var clients []*retryablehttp.Client
		for i, b := range bases {
			c := client(b)
			c.RetryMax = i
			c.RetryWaitMin, c.RetryWaitMax = time.Duration(i+1)*time.Hour, time.Duration(i+1)*time.Hour
			retryable.Install(c, tr)
			clients = append(clients, c)
		}
		for i, c := range clients {
			waited := took(func() {
				resp, err := c.Get("http://api.example.com")
				content(t, resp, err)
			})
			assert.Equal(t, i+1, bases[i].count(), "client %d", i)
			assert.Equal(t, time.Duration(i*(i+1))*time.Hour, waited, "client %d", i)
		}
		assert.Zero(t, tr.Retry, "t's own policy is for its other users")
		assert.Nil(t, tr.Trace)
	})
}

func TestTwoClientsOfOneTransportShareItsBudgetAndBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := &heed.Transport{}, always(503, nil)
		for range 2 {
			c := client(b)
			retryable.Install(c, tr)
			resp, err := c.Get("http://api.example.com")
			content(t, resp, err)
		}
		assert.Equal(t, 5, b.count(), "two requests, and the three retries of a new budget")

		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		limited, other := client(srv.Transport()), client(srv.Transport())
		limited.RetryMax = 0
		retryable.Install(limited, tr)
		retryable.Install(other, tr)
		resp, err := limited.Get(srv.URL)
		content(t, resp, err)
		assert.GreaterOrEqual(t, took(func() {
			resp, err := other.Get(srv.URL)
			content(t, resp, err)
		}), 10*time.Second)
	})
}

func TestInstallingAgainKeepsRetryMaxAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Delay: time.Hour, Times: -1})
		c := client(srv.Transport())
		c.RetryMax, c.HTTPClient.Timeout = 1, 5*time.Second
		c.RetryWaitMin, c.RetryWaitMax = time.Second, time.Second
		for range 3 {
			retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		}
		assert.Equal(t, 11*time.Second, took(func() {
			_, err := c.Get(srv.URL)
			require.Error(t, err)
		}))
		assert.Len(t, srv.Log(), 2)
	})
}

func TestInstallingAgainKeepsThatThereIsNoErrorHandler(t *testing.T) {
	c := client(always(503, nil))
	c.ErrorHandler = nil
	retryable.Install(c, nil)
	retryable.Install(c, nil)
	_, err := c.Post("http://api.example.com", "text/plain", []byte("pay"))
	assert.EqualError(t, err, "POST http://api.example.com giving up after 1 attempt(s): not idempotent")
}

func TestAnHTTPClientSetAfterInstallCanBeInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := installed(always(200, nil)), inTurn(503, 200)
		c.HTTPClient = &http.Client{Transport: b}
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		resp, err := c.Get("http://api.example.com")
		status, _ := content(t, resp, err)
		assert.Equal(t, 200, status)
		assert.Equal(t, 2, b.count())
	})
}

func TestInstallingAgainKeepsCheckRetryAndErrorHandler(t *testing.T) {
	for name, change := range map[string]func(*retryablehttp.Client){
		"the same":            func(*retryablehttp.Client) {},
		"another http.Client": func(c *retryablehttp.Client) { c.HTTPClient = &http.Client{Transport: always(404, nil)} },
	} {
		t.Run(name, func(t *testing.T) { keepsCheckRetryAndErrorHandler(t, change) })
	}
}

func keepsCheckRetryAndErrorHandler(t *testing.T, change func(*retryablehttp.Client)) {
	synctest.Test(t, func(t *testing.T) {
		b, handled := always(404, nil), errors.New("handled")
		c := client(b)
		c.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
			return resp.StatusCode == http.StatusNotFound, nil
		}
		c.ErrorHandler = func(resp *http.Response, _ error, tries int) (*http.Response, error) {
			assert.Equal(t, 5, tries)
			return nil, handled
		}
		for range 3 {
			retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
			change(c)
		}
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		_, err := c.Get("http://api.example.com")
		require.ErrorIs(t, err, handled)
	})
}

func TestFieldsThatAreSetStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := always(503, nil)
		c := client(b)
		c.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { return false, nil }
		c.Logger = panics{}
		told := 0
		retryable.Install(c, &heed.Transport{
			Budget: heed.Unlimited,
			Retry: heed.RetryPolicy{
				MaxAttempts: 2, If: heed.Worthwhile,
				Backoff: func(heed.Attempt) time.Duration { return 3 * time.Hour },
			},
			Trace: &heed.Trace{Decided: func(heed.Attempt, heed.Verdict, time.Duration) { told++ }},
		})
		c.Logger = nil
		assert.Equal(t, 3*time.Hour, took(func() {
			resp, err := c.Get("http://api.example.com")
			content(t, resp, err)
		}))
		assert.Equal(t, 2, b.count())
		assert.Equal(t, 2, told)
	})
}

// panics is a Logger that must not be used.
type panics struct{}

func (panics) Printf(string, ...any) { panic("logged") }

func TestMaxWaitMaxElapsedAndAttemptTimeoutStayAsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []heed.RetryPolicy{{MaxWait: time.Minute}, {MaxElapsed: 5 * time.Minute}} {
			srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Minute})
			c := client(srv.Transport())
			retryable.Install(c, &heed.Transport{Retry: p})
			resp, err := c.Get(srv.URL)
			status, _ := content(t, resp, err)
			assert.Equal(t, 429, status)
		}
		srv := testserver.New(t, testserver.Step{Delay: time.Minute, Times: -1})
		c := client(srv.Transport())
		c.RetryMax, c.HTTPClient.Timeout = 0, 10*time.Second
		retryable.Install(c, &heed.Transport{Retry: heed.RetryPolicy{AttemptTimeout: 20 * time.Second}})
		assert.Equal(t, 20*time.Second, took(func() {
			_, err := c.Get(srv.URL)
			require.Error(t, err)
		}))
	})
}

func TestABodyCanBeReadAfterALongerAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(15 * time.Second)
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Second)
				io.WriteString(w, "late")
			})
		})
		c := client(srv.Transport())
		c.HTTPClient.Timeout = 10 * time.Second
		retryable.Install(c, &heed.Transport{Retry: heed.RetryPolicy{AttemptTimeout: 20 * time.Second}})
		resp, err := c.Get(srv.URL)
		_, body := content(t, resp, err)
		assert.Equal(t, "late", body)
	})
}

func TestAPolicyOfTheContextReplacesTheSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := always(503, nil)
		req := request(t, "GET", "http://api.example.com", nil)
		req = req.WithContext(heed.WithRetryFunc(t.Context(), func(p heed.RetryPolicy) heed.RetryPolicy {
			assert.Equal(t, 5, p.MaxAttempts, "RetryMax is known")
			p.MaxAttempts--
			return p
		}))
		resp, err := installed(b).Do(req)
		content(t, resp, err)
		assert.Equal(t, 4, b.count())
	})
}

// A Transport that gains a field keeps it in an installed client.
func TestEveryFieldOfTheTransportIsUsed(t *testing.T) {
	var names []string
	for f := range reflect.TypeFor[heed.Transport]().Fields() {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	assert.ElementsMatch(t, []string{"Base", "Retry", "Budget", "Pacer", "Board", "Key", "Trace"}, names)

	synctest.Test(t, func(t *testing.T) {
		c, p := client(inTurn(429, 200)), new(pacer)
		keyed := false
		retryable.Install(c, &heed.Transport{Pacer: p, Key: func(*http.Request) string { keyed = true; return "" }})
		resp, err := c.Get("http://api.example.com")
		content(t, resp, err)
		assert.True(t, keyed)
		assert.Equal(t, 2, p.waited)
	})
}

type pacer struct{ waited int }

func (p *pacer) Wait(*http.Request) error { p.waited++; return nil }
func (p *pacer) Observe(heed.Attempt)     {}

func TestRetryMaxOfTheLargestIntIsUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inTurn(slices.Concat(slices.Repeat([]int{503}, 40), []int{200})...)
		c := client(b)
		c.RetryMax = math.MaxInt
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		resp, err := c.Get("http://api.example.com")
		status, _ := content(t, resp, err)
		assert.Equal(t, 200, status)
	})
}

func TestAZeroClientMakesOneAttempt(t *testing.T) {
	b := always(503, nil)
	c := &retryablehttp.Client{HTTPClient: &http.Client{Transport: b}}
	retryable.Install(c, nil)
	resp, err := c.Get("http://api.example.com")
	status, _ := content(t, resp, err)
	assert.Equal(t, 503, status)
	assert.Equal(t, 1, b.count())
}

func TestACheckRetryMayReadTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.Step{Body: "pending"}, testserver.Step{Body: "pending"}, testserver.Step{Body: "done"})
		c := client(srv.Transport())
		asked := 0
		c.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
			asked++
			content, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(content))
			return string(content) == "pending", nil
		}
		c.HTTPClient.Timeout = time.Minute
		retryable.Install(c, nil)
		resp, err := c.Get(srv.URL)
		_, body := content(t, resp, err)
		assert.Equal(t, "done", body)
		assert.Equal(t, 3, asked, "once for each attempt")
	})
}

func TestPrepareRetryIsFinalWhateverCheckRetrySays(t *testing.T) {
	for name, policy := range map[string]func(retryablehttp.CheckRetry) heed.RetryPolicy{
		"filled": func(retryablehttp.CheckRetry) heed.RetryPolicy { return heed.RetryPolicy{} },
		"If": func(check retryablehttp.CheckRetry) heed.RetryPolicy {
			return heed.RetryPolicy{If: retryable.If(check)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, noKey := always(503, nil), errors.New("no key")
				c := installedWith(b, func(*http.Request) error { return noKey })
				c.CheckRetry = func(_ context.Context, _ *http.Response, err error) (bool, error) {
					assert.NoError(t, err, "it is not asked about an error of PrepareRetry")
					return true, nil
				}
				retryable.Install(c, &heed.Transport{Budget: heed.Unlimited, Retry: policy(c.CheckRetry)})
				_, err := c.Get("http://api.example.com")
				require.ErrorIs(t, err, noKey)
				assert.Equal(t, 1, b.count())
			})
		})
	}
}

// A request that is not sent has no response: CheckRetry sees the error.
func TestARequestThatIsRefusedLocallyIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, full := client(always(200, nil)), errors.New("full")
		retryable.Install(c, &heed.Transport{Pacer: refusing{full}})
		assert.Zero(t, took(func() {
			_, err := c.Get("http://api.example.com")
			require.ErrorIs(t, err, full)
		}))
	})
}

type refusing struct{ err error }

func (p refusing) Wait(*http.Request) error { return p.err }
func (p refusing) Observe(heed.Attempt)     {}

// A Base may return a response to a request of its own, such as a cached one.
func TestAResponseToAnotherRequestIsJudgedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := always(0, nil)
		b.f = func(*http.Request) (*http.Response, error) { return answer(get(t, context.Background()), 503), nil }
		c, asked := client(b), 0
		c.ErrorHandler = nil
		c.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { asked++; return true, nil }
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		_, err := c.Get("http://proxied.example.com")
		require.EqualError(t, err, "GET http://proxied.example.com giving up after 5 attempt(s)")
		assert.Equal(t, 5, b.count())
		assert.Equal(t, 5, asked)
	})
}

func TestAClientBelowAnotherDoesNotAnswerForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := always(503, nil)
		below := installed(b)
		below.CheckRetry = nil
		retryable.Install(below, &heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: 1}})
		above := client(below.StandardClient().Transport)
		above.ErrorHandler = nil
		above.RetryMax = 2
		retryable.Install(above, &heed.Transport{Budget: heed.Unlimited})
		_, err := above.Get("http://api.example.com")
		require.EqualError(t, err, "GET http://api.example.com giving up after 3 attempt(s)")
		assert.Equal(t, 3, b.count())
	})
}

func TestAVetoIsNotTakenForAWantOfIdempotency(t *testing.T) {
	for veto, want := range map[string]string{
		"":      "POST http://api.example.com giving up after 1 attempt(s): not idempotent",
		"false": "POST http://api.example.com giving up after 1 attempt(s)",
	} {
		b := always(0, nil)
		b.f = func(req *http.Request) (*http.Response, error) {
			resp := answer(req, 503)
			resp.Header.Set("X-Should-Retry", veto)
			return resp, nil
		}
		c := client(b)
		c.ErrorHandler = nil
		retryable.Install(c, nil)
		_, err := post(c, "http://api.example.com")
		require.EqualError(t, err, want)
	}
}

func TestManyRequestsOfOneClientKeepApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := always(503, nil)
		b.f = func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/fine" {
				return answer(req, 200), nil
			}
			return answer(req, 503), nil
		}
		c := client(b)
		c.ErrorHandler = nil
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				path := []string{"/fine", "/down"}[i%2]
				resp, err := c.Get("http://api.example.com" + path)
				if path == "/fine" {
					content(t, resp, err)
				} else {
					assert.EqualError(t, err, "GET http://api.example.com/down giving up after 5 attempt(s)")
				}
			})
		}
		all.Wait()
	})
}

func TestAGivenUpResponseLeavesItsConnectionReusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, Body: "down for maintenance", Times: -1})
		c := client(srv.Transport())
		c.ErrorHandler = nil
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
		for range 2 {
			_, err := c.Get(srv.URL)
			require.Error(t, err)
		}
		peers := make(map[string]bool)
		for _, e := range srv.Log() {
			peers[e.Remote] = true
		}
		assert.Len(t, peers, 1)
		srv.Check(t)
	})
}
