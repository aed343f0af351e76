package testserver_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/testserver"
)

func init() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a log line for each 429 would hide why a test fails
	log.SetOutput(os.Stderr)                       // SetDefault has sent package log to slog too
}

// A fakeTB is a testing.TB whose failure does not fail the test.
type fakeTB struct {
	testing.TB // nil: a Server must not call any other method

	cleanups []func()
	failures []string
}

func (f *fakeTB) Helper()          {}
func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Errorf(format string, a ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, a...))
}
func (f *fakeTB) Fatalf(format string, a ...any) { panic(fatal(fmt.Sprintf(format, a...))) }

type fatal string

// end runs the cleanups, the last one first.
func (f *fakeTB) end() {
	for len(f.cleanups) > 0 {
		last := f.cleanups[len(f.cleanups)-1]
		f.cleanups = f.cleanups[:len(f.cleanups)-1]
		last()
	}
}

// get returns the status and body of a GET, or the error.
func get(t testing.TB, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestStepsAnswerInOrderThen200(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.Step{},
			testserver.Step{Status: 503, Body: "later", Times: 2},
			testserver.Step{Status: 204},
		)
		c := &http.Client{Transport: srv.Transport()}
		for _, want := range []string{"200 ", "503 later", "503 later", "204 ", "200 ok\n", "200 ok\n"} {
			require.Equal(t, want, get(t, c, srv.URL))
		}
		require.Len(t, srv.Log(), 6)
	})
}

func TestNegativeTimesRepeatsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 500, Times: -1}, testserver.Step{Status: 404})
		c := &http.Client{Transport: srv.Transport()}
		for range 20 {
			require.Equal(t, "500 ", get(t, c, srv.URL))
		}
	})
}

func TestRetryAfterIsInWholeSecondsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat)
		steps := []testserver.Step{
			{RetryAfter: time.Nanosecond},
			{RetryAfter: time.Second},
			{RetryAfter: time.Second + 1},
			{RetryAfter: 1<<63 - 1},
			{Header: http.Header{"retry-after": {date}}},
			{},
		}
		srv := testserver.New(t, steps...)
		for i, want := range []string{"1", "1", "2", "9223372037", date, ""} {
			req, err := http.NewRequest("GET", srv.URL, nil)
			require.NoError(t, err)
			resp, err := srv.Transport().RoundTrip(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, want, resp.Header.Get("Retry-After"), "step %d", i)
		}
	})
}

func TestDelayComesFirstAndDropSendsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		srv := testserver.New(t, testserver.Step{Delay: time.Hour}, testserver.Step{Drop: true, Delay: time.Second})
		c := &http.Client{Transport: srv.Transport()}
		require.Equal(t, "200 ", get(t, c, srv.URL))
		require.Equal(t, time.Hour, time.Since(start))

		_, err := c.Post(srv.URL, "text/plain", strings.NewReader("x"))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, time.Hour+time.Second, time.Since(start))

		log := srv.Log()
		require.Len(t, log, 2)
		assert.Equal(t, start, log[0].Arrived)
		assert.Equal(t, start.Add(time.Hour), log[0].Answered)
		assert.Equal(t, 200, log[0].Status)
		assert.Zero(t, log[1].Status)
		assert.True(t, log[1].Dropped)
		assert.True(t, log[1].Answered.IsZero())
		assert.Equal(t, start.Add(time.Hour+time.Second), log[1].Finished)
	})
}

func TestTheLogHasAllOfAnExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.Step{Status: 429, RetryAfter: time.Second, Body: "slow down", Header: http.Header{"X-Test": {"a", "b"}}})
		srv.Key = func(r *http.Request) string { return "customer " + r.Header.Get("X-Api-Key") }
		body := bytes.Repeat([]byte("heed"), 50_000)
		req, err := http.NewRequest("PUT", "http://other.example/a/b?q=1", bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("X-Api-Key", "7")
		resp, err := srv.Transport().RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())

		log := srv.Log()
		require.Len(t, log, 1)
		e, sum := log[0], sha256.Sum256(body)
		assert.Equal(t, "customer 7", e.Key)
		assert.Equal(t, "PUT", e.Method)
		assert.Equal(t, "http://other.example/a/b?q=1", e.URL)
		assert.Equal(t, "7", e.Header.Get("X-Api-Key"))
		assert.Equal(t, "192.0.2.1:1025", e.Remote)
		assert.Equal(t, int64(200_000), e.BodyLength)
		assert.Equal(t, hex.EncodeToString(sum[:]), e.BodySHA256)
		assert.False(t, e.BodyUnread)
		assert.Equal(t, 429, e.Status)
		assert.Equal(t, "1", e.ResponseHeader.Get("Retry-After"))
		assert.Equal(t, []string{"a", "b"}, e.ResponseHeader["X-Test"])
		assert.Equal(t, resp.Header.Get("Date"), e.ResponseHeader.Get("Date"))
		assert.Equal(t, "slow down", string(e.ResponseBody))
		assert.Equal(t, int64(9), e.ResponseLength)
		assert.Equal(t, []int64{1, 2}, []int64{e.ArrivalNo, e.AnswerNo})
		assert.False(t, e.Finished.IsZero())
	})
}

func TestTheLogKeepsTheBeginningOfALongBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Body: strings.Repeat("x", 1<<20)})
		require.Len(t, get(t, &http.Client{Transport: srv.Transport()}, srv.URL), len("200 ")+1<<20)
		e := srv.Log()[0]
		assert.Len(t, e.ResponseBody, 64<<10)
		assert.Equal(t, int64(1<<20), e.ResponseLength)
	})
}

func TestHeadHasAHeaderAndNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Body: "12345"})
		resp, err := (&http.Client{Transport: srv.Transport()}).Head(srv.URL)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, int64(5), resp.ContentLength)
		assert.Empty(t, srv.Log()[0].ResponseBody)
	})
}

func TestExpectContinueIsRefusedWithoutReadingTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429})
		send := func() (int, *strings.Reader) {
			body := strings.NewReader("payload")
			req, err := http.NewRequest("POST", srv.URL, body)
			require.NoError(t, err)
			req.Header.Set("Expect", "100-continue")
			resp, err := srv.Transport().RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode, body
		}
		status, body := send()
		assert.Equal(t, 429, status)
		assert.Equal(t, 7, body.Len(), "nothing was read")
		status, body = send()
		assert.Equal(t, 200, status)
		assert.Zero(t, body.Len())

		log := srv.Log()
		assert.True(t, log[0].BodyUnread)
		assert.Empty(t, log[0].BodySHA256)
		assert.False(t, log[1].BodyUnread)
		assert.Equal(t, int64(7), log[1].BodyLength)
	})
}

func TestEachRouteHasItsOwnScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 500})
		srv.Route("GET /a/{id}", testserver.Step{Status: 201})
		srv.Route("b.example/", testserver.Step{Status: 202})
		c := &http.Client{Transport: srv.Transport()}
		assert.Equal(t, "201 ", get(t, c, srv.URL+"/a/1"))
		assert.Equal(t, "500 ", get(t, c, srv.URL+"/a/1/2"))
		assert.Equal(t, "202 ", get(t, c, "http://b.example/any"))
		assert.Equal(t, "200 ok\n", get(t, c, srv.URL+"/a/2"))
	})
}

func TestTheTransportKeepsAndClosesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		c := &http.Client{Transport: srv.Transport()}
		get(t, c, srv.URL)
		get(t, c, srv.URL)
		c.CloseIdleConnections()
		get(t, c, srv.URL)
		log := srv.Log()
		assert.Equal(t, log[0].Remote, log[1].Remote)
		assert.NotEqual(t, log[0].Remote, log[2].Remote)
	})
}

func TestTheTransportTakesHTTPSURLs(t *testing.T) {
	for name, start := range map[string]func(testing.TB,
		...testserver.Step) *testserver.Server{"memory": testserver.New, "TCP": testserver.NewTCP} {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
			srv.Key = func(r *http.Request) string {
				if r.TLS == nil {
					return "no TLS"
				}
				return r.TLS.ServerName
			}
			c := &http.Client{Transport: srv.Transport()}
			for url, key := range map[string]string{"https://api.github.com/user?next=http://a/": "api.github.com",
				"http://api.github.com/user": "no TLS", "https://[::1]:8443/a": "::1"} {
				resp, err := c.Get(url)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Nil(t, resp.TLS)
				log := srv.Log()
				require.Equal(t, url, log[len(log)-1].URL)
				require.Equal(t, key, log[len(log)-1].Key)
				c.CloseIdleConnections()
			}
			srv.Check(t)
		})
	}
}

// As middleware does that redirects to https.
func TestAHandlerSeesWhetherTheURLWasHTTPS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.TLS == nil {
					http.Redirect(w, r, "https://"+r.Host+r.RequestURI, http.StatusPermanentRedirect)
					return
				}
				next.ServeHTTP(w, r)
			})
		})
		get(t, &http.Client{Transport: srv.Transport()}, "http://api.example/a?b=http://c")
		var seen []string
		for _, e := range srv.Log() {
			seen = append(seen, fmt.Sprint(e.Status, " ", e.URL))
		}
		require.Equal(t, []string{"308 http://api.example/a?b=http://c", "200 https://api.example/a?b=http://c"}, seen)
	})
}

func TestAnyClientReachesATCPServer(t *testing.T) {
	srv := testserver.NewTCP(t, testserver.Step{Status: 201}, testserver.Step{Status: 202})
	assert.Equal(t, "201 ", get(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, srv.URL))
	assert.Equal(t, "202 ", get(t, &http.Client{Transport: srv.Transport()}, "http://any.example/"))
	log := srv.Log()
	assert.Equal(t, srv.URL+"/", log[0].URL)
	assert.Equal(t, "http://any.example/", log[1].URL)
	srv.Check(t)
}

func TestInvalidStepsAndPatternsFailTheTest(t *testing.T) {
	wrong := map[string]func(t testing.TB){
		"testserver: New: step 2: its Status is 42, want 200 to 999": func(t testing.TB) {
			testserver.New(t, testserver.Step{}, testserver.Step{Status: 42})
		},
		"testserver: New: step 1: its Status is 103, want 200 to 999": func(t testing.TB) {
			testserver.New(t, testserver.Step{Status: 103})
		},
		"testserver: NewTCP: step 1: its RetryAfter is -1ns, must not be negative": func(t testing.TB) {
			testserver.NewTCP(t, testserver.Step{RetryAfter: -1})
		},
		"testserver: Route /a: step 1: its Delay is -1s, must not be negative": func(t testing.TB) {
			testserver.New(t).Route("/a", testserver.Step{Delay: -time.Second})
		},
		"testserver: NewLimited: wrap is nil": func(t testing.TB) { testserver.NewLimited(t, nil) },
	}
	for want, do := range wrong {
		t.Run(want, func(t *testing.T) {
			f := &fakeTB{}
			defer f.end()
			require.PanicsWithValue(t, fatal(want), func() { do(f) })
		})
	}
	t.Run("patterns", func(t *testing.T) {
		f := &fakeTB{}
		defer f.end()
		srv := testserver.New(f)
		srv.Route("/a/{x}")
		for _, pattern := range []string{"", "GET", "/a/{x}", "/{"} {
			require.Panics(t, func() { srv.Route(pattern) }, pattern)
		}
	})
}

func TestAHandlerUnderTestMayFlushHijackAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/flush":
					w.(http.Flusher).Flush()
					time.Sleep(time.Second)
					return
				case "/hints":
					w.WriteHeader(http.StatusEarlyHints)
				case "/hijack":
					conn, rw, err := w.(http.Hijacker).Hijack()
					if assert.NoError(t, err) {
						fmt.Fprint(rw, "HTTP/1.1 299 Mine\r\nContent-Length: 0\r\n\r\n")
						rw.Flush()
						conn.Close()
					}
					return
				case "/panic":
					panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(w, r)
			})
		})
		c := &http.Client{Transport: srv.Transport()}
		start := time.Now()
		resp, err := c.Get(srv.URL + "/flush")
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "200 ok\n", get(t, c, srv.URL+"/hints"))
		require.Equal(t, "299 ", get(t, c, srv.URL+"/hijack"))
		_, err = c.Post(srv.URL+"/panic", "", nil)
		require.ErrorIs(t, err, io.EOF)

		log := srv.Log()
		assert.Equal(t, []int{200, 200, 0, 0}, []int{log[0].Status, log[1].Status, log[2].Status, log[3].Status})
		assert.False(t, log[2].Dropped, "it is unknown what happened after the hijack")
		assert.True(t, log[3].Dropped)
	})
}

func TestNewLimitedScriptsTheLimitedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(next http.Handler) http.Handler { return next })
		srv.Route("/broken", testserver.Step{Status: 502, Times: -1})
		c := &http.Client{Transport: srv.Transport()}
		assert.Equal(t, "502 ", get(t, c, srv.URL+"/broken"))
		assert.Equal(t, "200 ok\n", get(t, c, srv.URL+"/other"))
	})
}

func TestManyWorkersAreCountedExactly(t *testing.T) {
	const workers = 50
	each := 6
	if testenv.Long() {
		each = 20
	}
	all := workers * each
	srv := testserver.New(t, testserver.Step{Status: 503, Times: all / 2})
	c := &http.Client{Transport: srv.Transport()}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				resp, err := c.Post(srv.URL, "", strings.NewReader("x"))
				if assert.NoError(t, err) {
					resp.Body.Close()
				}
				srv.Log()
			}
		})
	}
	wg.Wait()
	log := srv.Log()
	require.Len(t, log, all)
	failed, numbers := 0, make(map[int64]bool)
	for i, e := range log {
		if e.Status == 503 {
			failed++
		}
		numbers[e.ArrivalNo], numbers[e.AnswerNo] = true, true
		require.True(t, i == 0 || log[i-1].ArrivalNo < e.ArrivalNo)
		require.Less(t, e.ArrivalNo, e.AnswerNo)
	}
	assert.Equal(t, all/2, failed)
	assert.Len(t, numbers, 2*all)
}
