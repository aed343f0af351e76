package otelheed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/otelheed"
	"github.com/heedhttp/heed/testserver"
)

// script is answered with a failure, a refusal and success.
var script = []testserver.Step{{Status: 503}, {Status: 429, RetryAfter: 3 * time.Second}, {Body: "done"}}

func TestACallAndItsAttemptsHaveSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, script...)
		client := l.client(&heed.Transport{Base: srv.Transport(), Retry: heed.RetryPolicy{Backoff: every(2 * time.Second)}})
		assert.Equal(t, 200, call(t, client, srv.URL))
		assertTree(t, `
heed GET internal 0s-5s [attempts=3, final, 200]
- heed.verdict 0s [attempt=1, again, 503]
- heed.wait 0s [cause=backoff, duration=2]
- heed.verdict 2s [attempt=2, again, 429]
- heed.wait 2s [cause=hint, duration=3, sources=["Retry-After"]]
  GET client 0s-0s [503, 503] Error
  GET client 2s-2s [resend_count=1, 429, 429] Error
  GET client 5s-5s [resend_count=2, 200]
`, l)
		srv.Check(t)
	})
}

func TestASpanSaysMethodAndServer(t *testing.T) {
	l := newLab(t)
	client := l.client(&heed.Transport{Base: always(204)})
	for url, want := range map[string]string{
		"http://API.example.com/path":    "server.address=api.example.com server.port=80",
		"https://api.example.com/?query": "server.address=api.example.com server.port=443",
		"https://[2001:db8::1]:8443":     "server.address=2001:db8::1 server.port=8443",
		"http://api.example.com:99999":   "server.address=api.example.com",
		"unix://sock":                    "server.address=sock",
	} {
		for method, name := range map[string]string{"": "GET", "QUERY": "QUERY", "get": "HTTP", "PROPFIND": "HTTP"} {
			l.spans.Reset()
			req, err := http.NewRequest("GET", url, nil)
			require.NoError(t, err)
			req.Method = method
			resp, err := client.Transport.RoundTrip(req)
			require.NoError(t, err)
			resp.Body.Close()
			shown := "_OTHER"
			if name != "HTTP" {
				shown = name
			}
			for i, span := range l.spans.Started() {
				var all []string
				for _, a := range span.Attributes()[:1+strings.Count(want, "=")] {
					all = append(all, string(a.Key)+"="+a.Value.String())
				}
				assert.Equal(t, "http.request.method="+shown+" "+want, strings.Join(all, " "), "%s %s", method, url)
				assert.Equal(t, []string{"heed " + name, name}[i], span.Name())
			}
		}
	}
}

func TestRedirectsAndTheirRetriesCountAsResends(t *testing.T) {
	for name, own := range map[string]bool{"GET": true, "HTTP GET": false} {
		synctest.Test(t, func(t *testing.T) {
			l, srv := newLab(t), testserver.New(t)
			srv.Route("/old", testserver.Step{Status: 503},
				testserver.Step{Status: 302, Header: http.Header{"Location": {"/new"}}})
			srv.Route("/new", testserver.Step{Status: 503})
			retry := heed.RetryPolicy{Backoff: every(time.Second), AttemptTimeout: time.Minute}
			client := l.client(&heed.Transport{Base: srv.Transport(), Retry: retry})
			if !own {
				client = l.clientWith(&heed.Transport{Base: srv.Transport(), Retry: retry}, l.otelhttp)
			}
			ctx, span := l.traces.Tracer("app").Start(t.Context(), "app")
			req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/old", nil)
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			span.End()
			assertTree(t, strings.ReplaceAll(`
app internal 0s-2s
  heed GET internal 0s-1s [attempts=2, final, 302]
  - heed.verdict 0s [attempt=1, again, 503]
  - heed.wait 0s [cause=backoff, duration=1]
    METHOD client 0s-0s [503, 503] Error
    METHOD client 1s-1s [resend_count=1, 302]
  heed GET internal 1s-2s [attempts=2, final, 200]
  - heed.verdict 1s [attempt=1, again, 503]
  - heed.wait 1s [cause=backoff, duration=1]
    METHOD client 1s-1s [resend_count=2, 503, 503] Error
    METHOD client 2s-2s [resend_count=3, 200]
`, "METHOD", name), l)
		})
	}
}

func TestWhatIsNotRetriedSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		steps []testserver.Step
		retry heed.RetryPolicy
		want  string
	}{
		"out of attempts": {[]testserver.Step{{Status: 503}, {Status: 503}}, heed.RetryPolicy{MaxAttempts: 2}, `
heed GET internal 0s-1s [attempts=2, out of attempts, 503, 503] Error
- heed.verdict 0s [attempt=1, again, 503]
- heed.wait 0s [cause=backoff, duration=1]
- heed.verdict 1s [attempt=2, out of attempts, 503, required=1]
  GET client 0s-0s [503, 503] Error
  GET client 1s-1s [resend_count=1, 503, 503] Error
`},
		"wait too long": {[]testserver.Step{{Status: 429, RetryAfter: 10 * time.Minute}}, heed.RetryPolicy{}, `
heed GET internal 0s-0s [attempts=1, wait too long, 429, 429] Error
- heed.verdict 0s [attempt=1, wait too long, 429, required=600]
  GET client 0s-0s [429, 429] Error
`},
		"out of time": {[]testserver.Step{{Status: 503}}, heed.RetryPolicy{MaxElapsed: time.Millisecond}, `
heed GET internal 0s-0s [attempts=1, out of time, 503, 503] Error
- heed.verdict 0s [attempt=1, out of time, 503, required=1]
  GET client 0s-0s [503, 503] Error
`},
		"final": {[]testserver.Step{{Status: 404}}, heed.RetryPolicy{}, `
heed GET internal 0s-0s [attempts=1, final, 404, 404] Error
  GET client 0s-0s [404, 404] Error
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, srv := newLab(t), testserver.New(t, test.steps...)
				test.retry.Backoff = every(time.Second)
				call(t, l.client(&heed.Transport{Base: srv.Transport(), Retry: test.retry}), srv.URL)
				assertTree(t, test.want, l)
			})
		})
	}
}

func TestAHintThatNoFieldGivesHasNoSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 503, RetryAfter: time.Second})
		hint := func(*http.Response, time.Time) (time.Duration, bool) { return 5 * time.Second, true }
		retry := heed.RetryPolicy{Hint: hint, Backoff: every(0)}
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Retry: retry}), srv.URL)
		assert.Contains(t, l.tree(), "\n- heed.wait 0s [cause=hint, duration=5]\n")
	})
}

// A budget without a retry.
var broke = &heed.LocalBudget{Ratio: -1, MinPerSecond: -1}

func TestAnEmptyBudgetIsOnTheSpanAndTheMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 500})
		retry := heed.RetryPolicy{Backoff: every(time.Second)}
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Budget: broke, Retry: retry}), srv.URL)
		assertTree(t, `
heed GET internal 0s-0s [attempts=1, out of budget, 500, 500] Error
- heed.verdict 0s [attempt=1, out of budget, 500, required=1]
  GET client 0s-0s [500, 500] Error
`, l)
		assert.Equal(t, `
attempts {attempt} [out of budget, 500, server.test, 80] 1
budget.balance {retry} [server.test, 80] 0
`, l.metrics())
	})
}

func TestARefusedRequestSaysWhatItWouldWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 429, RetryAfter: 30 * time.Second})
		client := l.client(&heed.Transport{Base: srv.Transport(), Retry: heed.RetryPolicy{MaxWait: time.Second}})
		call(t, client, srv.URL)
		l.spans.Reset()
		_, err := client.Get(srv.URL)
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue)
		assertTree(t, `
heed GET internal 0s-0s [attempts=0, heed.OverdueError] Error
- heed.refused 0s [cause=cool-down, required=30, limit=RetryPolicy.MaxWait]
`, l)
		assert.Contains(t, l.metrics(), "\nrefusals {refusal} [cool-down, server.test, 80] 1\n")
	})
}

func TestOtherRequestsWaitsForACoolDownHaveTheirCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		client := l.client(&heed.Transport{Base: srv.Transport(), Retry: heed.RetryPolicy{MaxAttempts: 1}})
		call(t, client, srv.URL)
		l.spans.Reset()
		time.Sleep(4 * time.Second)
		assert.Equal(t, 200, call(t, client, srv.URL))
		assert.Contains(t, l.tree(), "\n- heed.wait 4s [cause=cool-down, duration=6]\n")
		assert.Regexp(t, `\nwait\.duration s \[cool-down, server\.test, 80\] 1 of [6-9](\.\d+)?\n`, l.metrics())
	})
}

// interval is a Pacer that has each request wait for so long.
type interval time.Duration

func (i interval) Wait(req *http.Request) error {
	select {
	case <-time.After(time.Duration(i)):
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

func (interval) Observe(heed.Attempt) {}

func TestAPacersWaitStandsWhereItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t)
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Pacer: interval(3 * time.Second)}), srv.URL)
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Pacer: interval(0)}), srv.URL)
		assertTree(t, `
heed GET internal 0s-3s [attempts=1, final, 200]
- heed.wait 0s [cause=pace, duration=3]
  GET client 3s-3s [200]
heed GET internal 3s-3s [attempts=1, final, 200]
  GET client 3s-3s [200]
`, l)
		assert.Contains(t, l.metrics(), "\nwait.duration s [pace, server.test, 80] 1 of 3\n")
	})
}

func TestACallCancelledWhileItWaitsIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(4*time.Second, cancel)
		req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
		require.NoError(t, err)
		_, err = l.client(&heed.Transport{Base: srv.Transport()}).Do(req)
		require.ErrorIs(t, err, context.Canceled)
		assertTree(t, `
heed GET internal 0s-4s [attempts=1]
- heed.verdict 0s [attempt=1, again, 429]
- heed.wait 0s [cause=hint, duration=10, sources=["Retry-After"]]
  GET client 0s-0s [429, 429] Error
`, l)
	})
}

func TestADeadlineDuringAnAttemptIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Delay: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
		require.NoError(t, err)
		_, err = l.client(&heed.Transport{Base: srv.Transport()}).Do(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assertTree(t, `
heed GET internal 0s-4s [attempts=1, final, timeout] Error
  GET client 0s-4s [timeout] Error
`, l)
	})
}

func TestAnAttemptTimeoutIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Delay: time.Minute})
		client := l.client(&heed.Transport{Base: srv.Transport(),
			Retry: heed.RetryPolicy{AttemptTimeout: 2 * time.Second, Backoff: every(time.Second)}})
		assert.Equal(t, 200, call(t, client, srv.URL))
		assertTree(t, `
heed GET internal 0s-3s [attempts=2, final, 200]
- heed.verdict 2s [attempt=1, again, timeout]
- heed.wait 2s [cause=backoff, duration=1]
  GET client 0s-2s [timeout] Error
  GET client 3s-3s [resend_count=1, 200]
`, l)
	})
}

func TestTheFirstOfSeveralErrorsIsTheErrorType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		client := l.client(&heed.Transport{Base: base(func(*http.Request) (*http.Response, error) { return nil, errBroken }),
			Retry: heed.RetryPolicy{MaxAttempts: 2, Backoff: every(0)}})
		_, err := client.Get("http://example.com")
		require.ErrorIs(t, err, errBroken)
		assertTree(t, `
heed GET internal 0s-0s [attempts=2, out of attempts, *errors.errorString] Error
- heed.verdict 0s [attempt=1, again, *errors.errorString]
- heed.verdict 0s [attempt=2, out of attempts, *errors.errorString]
  GET client 0s-0s [*errors.errorString] Error
  GET client 0s-0s [resend_count=1, *errors.errorString] Error
`, l)
	})
}

// speaking has what semconv.ErrorType asks for. As a server may have written it, it may differ
// each time.
type speaking struct{}

func (speaking) Error() string     { return "err-s3cr3t" }
func (speaking) ErrorType() string { return "type-s3cr3t" }

func TestAnErrorTypeIsNeverTheErrorsOwnText(t *testing.T) {
	const speakingType = "github.com/heedhttp/heed/otelheed_test.speaking"
	for _, c := range []struct {
		err  error
		want string
	}{
		{speaking{}, speakingType},
		{fmt.Errorf("sending: %w", speaking{}), speakingType},
		{errors.Join(fmt.Errorf("sending: %w", speaking{}), errBroken), speakingType},
		{&url.Error{Op: "Get", Err: speaking{}}, "*url.Error"},
		{fmt.Errorf("of nothing: %w", nil), "*fmt.wrapError"},
	} {
		l := newLab(t)
		client := l.client(&heed.Transport{Base: base(func(*http.Request) (*http.Response, error) { return nil, c.err }),
			Retry: heed.RetryPolicy{MaxAttempts: 1}})
		_, err := client.Get("http://example.com")
		require.Error(t, err)
		assert.NotContains(t, l.tree()+l.metrics(), "s3cr3t")
		for _, span := range l.spans.Ended() {
			assert.Contains(t, span.Attributes(), attribute.String("error.type", c.want))
		}
	}
}

func TestUserInfoInTheHostIsNotShown(t *testing.T) {
	l := newLab(t)
	target := &url.URL{Scheme: "http", Host: "user:s3cr3t@example.com"}
	req := &http.Request{Method: "GET", Header: http.Header{}, URL: target}
	resp, err := l.client(&heed.Transport{Base: always(200)}).Transport.RoundTrip(req)
	require.NoError(t, err)
	resp.Body.Close()
	for _, span := range l.spans.Ended() {
		assert.Contains(t, span.Attributes(), attribute.String("server.address", "example.com"))
	}
	assert.NotContains(t, l.metrics(), "s3cr3t")
}

func TestDrainedCallsEndWithWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		stop, drain := context.WithCancel(t.Context())
		time.AfterFunc(4*time.Second, drain)
		client := l.client(&heed.Transport{Base: srv.Transport()})
		for range 2 { // one that waits to be sent again, and one that comes too late
			req, err := http.NewRequestWithContext(heed.WithDrain(t.Context(), stop), "GET", srv.URL, nil)
			require.NoError(t, err)
			if resp, err := client.Do(req); err == nil {
				assert.Equal(t, 429, resp.StatusCode)
				resp.Body.Close()
			} else {
				assert.ErrorIs(t, err, heed.ErrNotSent)
			}
		}
		assertTree(t, `
heed GET internal 0s-4s [attempts=1, 429, 429] Error
- heed.verdict 0s [attempt=1, again, 429]
- heed.wait 0s [cause=hint, duration=10, sources=["Retry-After"]]
  GET client 0s-0s [429, 429] Error
heed GET internal 4s-4s [attempts=0, heed.ErrNotSent] Error
`, l)
	})
}

// Each Transport tells of itself, and none of the other.
func TestATransportInsideATransportReportsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 503, Times: 3})
		retry := heed.RetryPolicy{MaxAttempts: 2, Backoff: every(time.Second)}
		plain := &heed.Transport{Base: srv.Transport(), Retry: retry}
		inner := otelheed.NewTransport(&heed.Transport{Base: plain, Retry: heed.RetryPolicy{MaxAttempts: -1}}, l.options())
		assert.Equal(t, 503, call(t, l.client(&heed.Transport{Base: inner, Retry: retry}), srv.URL))
		assertTree(t, `
heed GET internal 0s-1s [attempts=1, final, 503, 503] Error
  GET client 0s-1s [503, 503] Error
    heed GET internal 0s-1s [attempts=1, final, 503, 503] Error
      GET client 0s-1s [503, 503] Error
`, l)
		assert.Contains(t, l.metrics(), "\nattempts {attempt} [final, 503, server.test, 80] 2\n")
		assert.NotContains(t, l.metrics(), "wait.duration", "the plain Transport reports no waits")
	})
}

func TestALostStoreIsToldByItsOwnTransportAlone(t *testing.T) {
	for name, attempts := range map[string]func(*lab) func(http.RoundTripper) http.RoundTripper{
		"spans":    func(*lab) func(http.RoundTripper) http.RoundTripper { return nil },
		"otelhttp": func(l *lab) func(http.RoundTripper) http.RoundTripper { return l.otelhttp },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			inner := otelheed.NewTransport(&heed.Transport{Base: always(200), Board: gone{}}, l.options())
			assert.Equal(t, 200, call(t, l.clientWith(&heed.Transport{Base: inner}, attempts(l)), "http://example.com"))
			assert.Equal(t, 1, strings.Count(l.tree(), "- heed.degraded"), l.tree())
		})
	}
}

func TestASpanEndsWithTheHeaderHoweverLongTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 60 {
					w.Write([]byte("data: tick\n"))
					w.(http.Flusher).Flush()
					time.Sleep(time.Minute)
				}
			})
		})
		assert.Equal(t, 200, call(t, l.client(&heed.Transport{Base: srv.Transport()}), srv.URL))
		assert.Equal(t, time.Hour, time.Since(l.began))
		assertTree(t, `
heed GET internal 0s-0s [attempts=1, final, 200]
  GET client 0s-0s [200]
`, l)
	})
}

func TestAPanicLeavesNoSpanOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		client := l.client(&heed.Transport{Base: base(func(*http.Request) (*http.Response, error) { panic("broken") })})
		assert.PanicsWithValue(t, "broken", func() { client.Get("http://example.com") })
		assertTree(t, `
heed GET internal 0s-0s [attempts=1, _OTHER] Error
  GET client 0s-0s [_OTHER] Error
`, l)
	})
}
