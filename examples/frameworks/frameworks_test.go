package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/examples/frameworks/echolimit"
	"github.com/heedhttp/heed/examples/frameworks/ginlimit"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

// each runs a test for each way, in a bubble of its own.
func each(t *testing.T, test func(t *testing.T, w way)) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, w) })
		})
	}
}

func TestTheSixthWrongPasswordIsDenied(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, events := w.serveLogins(t)
		assert.Equal(t, []int{401, 401, 401, 401, 401, 429, 429}, logIn(t, srv, slices.Repeat([]string{wrong}, 7)...))
		assert.Equal(t, w.unseenOf(wrong), events.count(serverside.ResponseUnseen), "it is reported once")
	})
}

// Where responses are not seen, no penalty grows, and an attempt every 12 s is admitted.
func TestGuessingForAnHourIsLimited(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, _ := w.serveLogins(t)
		guesses := 0
		for range 3600 {
			if logIn(t, srv, wrong)[0] != http.StatusTooManyRequests {
				guesses++
			}
			time.Sleep(time.Second)
		}
		switch w.name {
		case "gin middleware, naive":
			assert.Equal(t, 5+3600/12-1, guesses)
		default:
			assert.Less(t, guesses, 20)
		}
	})
}

func TestASuccessForgivesWhereItIsSeen(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, _ := w.serveLogins(t)
		before := logIn(t, srv, wrong, wrong, wrong, wrong, right)
		require.Equal(t, []int{401, 401, 401, 401, 200}, before)
		after := logIn(t, srv, slices.Repeat([]string{wrong}, 6)...)
		if w.unseenOf(right) > 0 {
			assert.Equal(t, slices.Repeat([]int{429}, 6), after)
		} else {
			assert.Equal(t, []int{401, 401, 401, 401, 401, 429}, after)
		}
	})
}

func TestOnlyASuccessForgives(t *testing.T) {
	for _, other := range []struct{ method, path, password string }{
		{"POST", "//login", wrong},
		{"POST", "/./login", wrong},
		{"POST", "/login/", wrong},
		{"POST", "/LOGIN", wrong},
		{"GET", "/login", wrong},
		{"HEAD", "/login", wrong},
		{"PUT", "/login", wrong},
		{"POST", "/login", redirect},
	} {
		t.Run(other.method+" "+other.path+" "+other.password, func(t *testing.T) {
			each(t, func(t *testing.T, w way) {
				srv, _ := w.serveLogins(t)
				logIn(t, srv, wrong, wrong, wrong, wrong)
				got := status(t, srv, attempt(t, srv, other.method, other.path, other.password))
				require.NotEqual(t, http.StatusTooManyRequests, got)
				assert.Equal(t, 429, logIn(t, srv, wrong, wrong)[1])
			})
		})
	}
}

func TestTheLimiterWritesTheDenial(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, _ := w.serveLogins(t)
		logIn(t, srv, wrong, wrong, wrong, wrong, wrong)
		resp, err := srv.Transport().RoundTrip(attempt(t, srv, "POST", "/login", right))
		require.NoError(t, err)
		defer resp.Body.Close()

		assert.Equal(t, 429, resp.StatusCode)
		assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
		var problem struct {
			Status       int   `json:"status"`
			RetryAfterMS int64 `json:"retry_after_ms"`
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem), "it is one document")
		assert.Equal(t, 429, problem.Status)
		assert.Positive(t, problem.RetryAfterMS)
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		require.NoError(t, err)
		time.Sleep(time.Duration(seconds) * time.Second)
		assert.Equal(t, []int{200}, logIn(t, srv, right))
	})
}

func TestResponsesKeepTheContract(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		rule := serverside.Rule{Name: "address", Policies: []quota.Policy{quota.PerMinute(2)}}
		srv := serve(t, w.limit(newLimiter(t, new(events).add, rule).Wrap))
		for _, want := range []int{200, 200, 429} {
			assert.Equal(t, want, status(t, srv, attempt(t, srv, "GET", "/login", "")))
		}
		assert.Equal(t, 429, status(t, srv, attempt(t, srv, "HEAD", "/login", "")))
		assert.Equal(t, 429, status(t, srv, attempt(t, srv, "GET", "/nowhere", "")))
		assert.NoError(t, contract.Check(srv.Log(), contract.Server()...))
	})
}

func TestARequestIsChargedOnce(t *testing.T) {
	for name, limit := range map[string]func(l *serverside.Limiter) http.Handler{
		"Wrap, Wrap":      func(l *serverside.Limiter) http.Handler { return l.Wrap(l.Wrap(chiEngine())) },
		"WrapEarly, Wrap": func(l *serverside.Limiter) http.Handler { return l.WrapEarly(l.Wrap(chiEngine())) },
		"chi": func(l *serverside.Limiter) http.Handler {
			return l.Wrap(chiEngine(l.WrapEarly, l.Wrap, l.Wrap))
		},
		"gin": func(l *serverside.Limiter) http.Handler {
			early, late := ginlimit.Middleware(l.WrapEarly), ginlimit.Middleware(l.Wrap)
			return l.WrapEarly(ginEngine(early, late, late))
		},
		"gin, naive": func(l *serverside.Limiter) http.Handler { return ginEngine(naiveGin(l.WrapEarly), naiveGin(l.Wrap)) },
		"echo": func(l *serverside.Limiter) http.Handler {
			early, late := echolimit.Middleware(l.WrapEarly), echolimit.Middleware(l.Wrap)
			return l.WrapEarly(echoEngine(early, late, late))
		},
		"echo, naive": func(l *serverside.Limiter) http.Handler {
			return echoEngine(echo.WrapMiddleware(l.WrapEarly), echo.WrapMiddleware(l.Wrap))
		},
	} {
		for _, stage := range []serverside.Stage{serverside.BeforeAuth, serverside.AfterAuth} {
			t.Run(fmt.Sprint(name, ", stage ", stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rule := serverside.Rule{Name: "address", Stage: stage, Policies: []quota.Policy{quota.PerMinute(1)}}
					srv := serve(t, limit(newLimiter(t, new(events).add, rule)))
					for _, want := range []int{200, 429} {
						assert.Equal(t, want, status(t, srv, attempt(t, srv, "GET", "/login", "")))
					}
					time.Sleep(time.Minute)
					assert.Equal(t, 200, status(t, srv, attempt(t, srv, "GET", "/login", "")))
				})
			})
		}
	}
}

// stream writes a line, and another a minute later. With ?hijack it takes the connection over.
func stream(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.URL.Query().Has("hijack") {
		conn, _, err := control.Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 203 Non-Authoritative Information\r\nContent-Length: 0\r\n\r\n")
		return
	}
	if err := control.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "one")
	if err := control.Flush(); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute)
	fmt.Fprintln(w, "two")
}

// serveStream starts a server in memory whose limiter needs the responses of /stream.
func (w way) serveStream(t *testing.T) (*testserver.Server, *events) {
	all := new(events)
	limiter := newLimiter(t, all.add, serverside.Rule{
		Name: "stream", Policies: []quota.Policy{quota.PerHour(1000)}, Settle: serverside.RefundIf(serverside.Succeeded),
	})
	return serve(t, w.limit(limiter.Wrap)), all
}

func TestResponsesStream(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, events := w.serveStream(t)
		began := time.Now()
		resp, err := srv.Transport().RoundTrip(attempt(t, srv, "POST", "/stream", ""))
		require.NoError(t, err)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i, want := range []string{"one", "two"} {
			require.True(t, lines.Scan())
			assert.Equal(t, want, lines.Text())
			assert.Equal(t, time.Duration(i)*time.Minute, time.Since(began))
		}
		synctest.Wait()
		assert.Equal(t, w.unseenOf(right), events.count(serverside.ResponseUnseen))
	})
}

func TestAConnectionCanBeTakenOver(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, events := w.serveStream(t)
		r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/stream?hijack", nil)
		require.NoError(t, err)
		assert.Equal(t, 203, status(t, srv, r))
		synctest.Wait()
		assert.Equal(t, w.unseenOf(right), events.count(serverside.ResponseUnseen))
	})
}

func TestTheServersLimitAndCount(t *testing.T) {
	for name, newServer := range servers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				h, err := newServer(reg)
				require.NoError(t, err)
				srv := serve(t, h)
				const password = "correct horse"
				assert.Equal(t, []int{401, 401, 401, 401, 200}, logIn(t, srv, wrong, wrong, wrong, wrong, password))
				assert.Equal(t, []int{401, 401, 401, 401, 401, 429}, logIn(t, srv, slices.Repeat([]string{wrong}, 6)...))
				assert.Equal(t, 1.0, counted(t, reg, "rate_limit_decisions_total", "refused"))

				time.Sleep(time.Minute) // until the address has all of its quota again
				for i := range 61 {
					want := 200
					if i == 60 {
						want = 429
					}
					assert.Equal(t, want, status(t, srv, attempt(t, srv, "GET", "/hello", "")))
				}
			})
		})
	}
}

// counted returns the sum of the series of a metric that have a label with a value.
func counted(t *testing.T, reg *prometheus.Registry, metric, value string) (sum float64) {
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if f.GetName() == metric && l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
