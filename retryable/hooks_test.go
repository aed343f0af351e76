package retryable_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

func TestTheLogHooksSeeEachAttemptAndEachResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Drop: true},
			testserver.Step{Status: 503}, testserver.Step{Status: 429}, testserver.Step{Status: 200})
		c := installed(srv.Transport())
		var seen []string
		c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, n int) {
			seen = append(seen, fmt.Sprint(req.Method, " ", n))
		}
		c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) {
			seen = append(seen, resp.Status)
		}
		resp, err := c.Get(srv.URL)
		content(t, resp, err)
		assert.Equal(t, []string{
			"GET 0", // dropped
			"GET 1", "503 Service Unavailable",
			"GET 2", "429 Too Many Requests",
			"GET 3", "200 OK",
		}, seen)
		srv.Check(t)
	})
}

func TestPrepareRetryPreparesEachRetryAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, Times: 2})
		c, n := installed(srv.Transport()), 0
		c.PrepareRetry = func(req *http.Request) error {
			n++
			req.Header.Add("Signature", fmt.Sprint(n))
			return nil
		}
		req := request(t, "GET", srv.URL, nil)
		resp, err := c.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		var signatures []string
		for _, e := range srv.Log() {
			signatures = append(signatures, strings.Join(e.Header["Signature"], "+"))
		}
		assert.Equal(t, []string{"", "1", "2"}, signatures)
		assert.Empty(t, req.Header, "the caller's request")
		assert.Equal(t, req.URL, resp.Request.URL)
	})
}

func TestWhatAHookChangesIsOfThatRetryAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, n := testserver.New(t, testserver.Step{Status: 503, Times: 2}), 0
		c := installed(srv.Transport())
		c.PrepareRetry = func(req *http.Request) error {
			n++
			req.URL.RawQuery += fmt.Sprint("retry=", n)
			return nil
		}
		req := request(t, "GET", srv.URL+"/", nil)
		resp, err := c.Do(req)
		content(t, resp, err)
		assert.Equal(t, []string{"GET /", "GET /?retry=1", "GET /?retry=2"}, paths(srv))
		assert.Empty(t, req.URL.RawQuery, "the caller's request")
		assert.Equal(t, "retry=2", resp.Request.URL.RawQuery)
	})
}

func TestTheHooksComeInTheUsualOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := installed(inTurn(503, 200))
		var order []string
		c.PrepareRetry = func(*http.Request) error { order = append(order, "prepare"); return nil }
		c.RequestLogHook = func(_ retryablehttp.Logger, _ *http.Request, n int) {
			order = append(order, fmt.Sprint("request ", n))
		}
		resp, err := c.Get("http://api.example.com")
		content(t, resp, err)
		assert.Equal(t, []string{"request 0", "prepare", "request 1"}, order)
	})
}

// As with go-retryablehttp itself: one call of PrepareRetry, and its error.
func TestAFailureToPrepareIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inTurn(503, 200)
		unsigned, called := errors.New("no key to sign with"), 0
		prepare := func(*http.Request) error { called++; return unsigned }
		req := request(t, "PUT", "http://api.example.com", []byte("cargo"))
		resp, err := installedWith(b, prepare).Do(req)
		require.ErrorIs(t, err, unsigned)
		require.Nil(t, resp)
		assert.Equal(t, 1, called)
		assert.Len(t, b.seen, 1)
	})
}

func installedWith(b *base, prepare retryablehttp.PrepareRetry) *retryablehttp.Client {
	c := installed(b)
	c.PrepareRetry = prepare
	return c
}

func TestABodyThatCouldNotBePreparedIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []*tracked
		body := func() (io.Reader, error) {
			b := &tracked{Reader: strings.NewReader("cargo")}
			bodies = append(bodies, b)
			return b, nil
		}
		c := installedWith(inTurn(503), func(*http.Request) error { return errors.New("no key to sign with") })
		_, err := c.Do(request(t, "PUT", "http://api.example.com", body))
		require.Error(t, err)
		require.Greater(t, len(bodies), 2)
		for i, b := range bodies {
			assert.Equal(t, 1, b.closed, "body %d", i)
		}
	})
}

func TestABodyIsClosedOnceThoughAHookPanics(t *testing.T) {
	for name, set := range map[string]func(*retryablehttp.Client){
		"PrepareRetry": func(c *retryablehttp.Client) { c.PrepareRetry = func(*http.Request) error { panic("hook") } },
		"RequestLogHook": func(c *retryablehttp.Client) {
			c.RequestLogHook = func(_ retryablehttp.Logger, _ *http.Request, n int) {
				if n == 1 {
					panic("hook")
				}
			}
		},
		"ResponseLogHook": func(c *retryablehttp.Client) {
			c.ResponseLogHook = func(retryablehttp.Logger, *http.Response) { panic("hook") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []*tracked
				body := func() (io.Reader, error) {
					b := &tracked{Reader: strings.NewReader("cargo")}
					sent = append(sent, b)
					return b, nil
				}
				received := &tracked{Reader: strings.NewReader("busy")}
				b := always(0, nil)
				b.f = func(req *http.Request) (*http.Response, error) {
					resp := answer(req, 503)
					resp.Body = received
					return resp, nil
				}
				c := client(b)
				c.HTTPClient.Timeout = time.Hour
				set(c)
				retryable.Install(c, nil)
				req := request(t, "PUT", "http://api.example.com", body)
				assert.PanicsWithValue(t, "hook", func() { c.Do(req) })
				for _, b := range append(sent, received) {
					assert.Equal(t, 1, b.closed)
				}
			})
		})
	}
}

// The context of an attempt of another heed.Transport may be that of the request.
func TestARequestWithinAnothersRetryIsNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notes
		token := installed(inTurn(200))
		token.PrepareRetry = func(*http.Request) error { told.add("prepare"); return nil }
		token.RequestLogHook = func(_ retryablehttp.Logger, _ *http.Request, n int) { told.add("request %d", n) }
		n := 0
		outer := &http.Client{Transport: &heed.Transport{Base: &base{f: func(req *http.Request) (*http.Response, error) {
			resp, err := token.Do(request(t, "GET", "http://token.example.com", nil).WithContext(req.Context()))
			content(t, resp, err)
			n++
			return answer(req, []int{503, 200}[n-1]), nil
		}}}}
		resp, err := outer.Get("http://api.example.com")
		content(t, resp, err)
		assert.Equal(t, notes{"request 0", "request 0"}, told)
	})
}

func TestTheTransportUsedElsewhereCallsNoHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Budget: heed.Unlimited}
		c := installedWith(inTurn(503, 200), func(*http.Request) error { return errors.New("called") })
		retryable.Install(c, tr)
		n := 0
		other := installed(&base{f: func(req *http.Request) (*http.Response, error) {
			token := (&http.Request{Method: "GET", URL: req.URL, Header: http.Header{}}).WithContext(req.Context())
			resp, err := tr.RoundTrip(token)
			content(t, resp, err)
			n++
			return answer(req, 200), nil
		}})
		resp, err := other.Get("http://api.example.com")
		content(t, resp, err)
		assert.Equal(t, 1, n)
	})
}

func TestTheHooksGetTheClientsLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			logger any
			want   string
		}{
			{nil, ""},
			{new(lines), "printf attempt 0\nprintf attempt 1\n"},
			{new(levels), "info attempt 0\ninfo attempt 1\n"},
		} {
			rc := installed(inTurn(503, 200))
			rc.Logger = c.logger
			rc.RequestLogHook = func(l retryablehttp.Logger, _ *http.Request, n int) {
				if l != nil {
					l.Printf("attempt %d", n)
				}
			}
			resp, err := rc.Get("http://api.example.com")
			content(t, resp, err)
			if c.logger != nil {
				assert.Equal(t, c.want, c.logger.(fmt.Stringer).String())
			}
		}
	})
}

// lines is a retryablehttp.Logger, levels a LeveledLogger. They keep what the
// hooks say.
type (
	lines  struct{ strings.Builder }
	levels struct{ strings.Builder }
)

func (l *lines) Printf(format string, args ...any) {
	if strings.HasPrefix(format, "attempt") {
		fmt.Fprintf(l, "printf "+format+"\n", args...)
	}
}

func (l *levels) Info(msg string, _ ...any) { fmt.Fprintf(l, "info %s\n", msg) }
func (l *levels) Error(string, ...any)      {}
func (l *levels) Debug(string, ...any)      {}
func (l *levels) Warn(string, ...any)       {}

func TestTwoClientsOfOneTransportKeepTheirHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: always(503, nil), Budget: heed.Unlimited}
		var responses, retries [2]atomic.Int32
		var clients [2]*retryablehttp.Client
		for i := range clients {
			clients[i] = client(nil)
			clients[i].ResponseLogHook = func(retryablehttp.Logger, *http.Response) { responses[i].Add(1) }
			clients[i].PrepareRetry = func(*http.Request) error { retries[i].Add(1); return nil }
			retryable.Install(clients[i], tr)
		}
		var wg sync.WaitGroup
		for i, n := range []int{3, 5} {
			for range n {
				wg.Go(func() {
					resp, err := clients[i].Get("http://api.example.com")
					content(t, resp, err)
				})
			}
		}
		wg.Wait()
		assert.EqualValues(t, 3*5, responses[0].Load())
		assert.EqualValues(t, 5*5, responses[1].Load())
		assert.EqualValues(t, 3*4, retries[0].Load())
		assert.EqualValues(t, 5*4, retries[1].Load())
	})
}
