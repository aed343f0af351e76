package serverside_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

func TestRetriesAreRefusedBeforeFirstAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := &ok{}
		l := must(t, serverside.Config{Audit: func(serverside.Event) {}, Rules: []serverside.Rule{
			{Name: "all", Policies: []quota.Policy{quota.PerMinute(100)}},
			{Name: "retries", If: serverside.Repeated, Policies: []quota.Policy{quota.PerMinute(3)}},
		}})
		h := l.Wrap(handler)
		for i, test := range []struct {
			attempt string
			status  int
		}{
			{"2", 200}, {"1",
				200}, {"3", 200}, {"2", 200}, {"2", 429}, {"7", 429}, {"1", 200}, {"", 200}, {"two", 200}, {"-2", 200},
		} {
			w := ask(h, "GET", "/", ratelimit.AttemptField, test.attempt)
			assert.Equal(t, test.status, w.Code, "request %d, attempt %q", i, test.attempt)
		}
		assert.Equal(t, 8, handler.served)
		assert.Equal(t, http.StatusOK, askFrom("198.51.100.7:1", h, "GET", "/", ratelimit.AttemptField, "2").Code,
			"each key has its own")
	})
}

func TestRuleThatDoesNotApplyWritesNoFields(t *testing.T) {
	l := must(t, serverside.Config{Audit: func(serverside.Event) {}, Rules: []serverside.Rule{
		{Name: "retries", If: serverside.Repeated, Policies: []quota.Policy{quota.PerMinute(3)}},
	}})
	assert.Empty(t, ask(l.Wrap(&ok{}), "GET", "/").Header()["Ratelimit"])
	assert.NotEmpty(t, ask(l.Wrap(&ok{}), "GET", "/", ratelimit.AttemptField, "2").Header()["Ratelimit"])
}

func TestInTimeRefusesLateRequestsUncharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := &ok{}
		l := limit(t, quota.PerMinute(2))
		h := serverside.InTime(func(r *http.Request) time.Duration {
			if r.URL.Path == "/report" {
				return time.Second
			}
			return 0
		}, l.Wrap(handler))
		for _, test := range []struct {
			path, left string
			status     int
		}{
			{"/report", "999", 503}, {"/report", "1", 503}, {"/quick", "1", 200}, {"/report", "1000", 200},
			{"/report", "999", 503}, {"/report", "", 429},
		} {
			w := ask(h, "GET", test.path, ratelimit.TimeLeftField, test.left)
			require.Equal(t, test.status, w.Code, "%+v", test)
			if test.status == 503 {
				assert.Equal(t, "false", w.Header().Get("X-Should-Retry"))
				assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				assert.Empty(t, w.Header().Get("Retry-After"))
				var problem struct {
					Type, Title, Detail string
					Status              int
				}
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem), w.Body.String())
				assert.Equal(t, serverside.ProblemLate, problem.Type)
				assert.Equal(t, 503, problem.Status)
				assert.NotEmpty(t, problem.Detail)
			}
		}
		assert.Equal(t, 2, handler.served)
		assert.Empty(t, ask(h, "HEAD", "/report", ratelimit.TimeLeftField, "5").Body.String())
	})
}

// A client says how long it will wait, and does not retry when that is too short.
func TestClientDoesNotRetryWhatInTimeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		srv := testserver.NewLimited(t, func(h http.Handler) http.Handler {
			return serverside.InTime(func(*http.Request) time.Duration { asked++; return 10 * time.Second }, h)
		})
		for _, test := range []struct {
			within time.Duration
			status int
		}{{9 * time.Second, 503}, {time.Minute, 200}} {
			c := &http.Client{
				Timeout:   test.within,
				Transport: &heed.Transport{Base: srv.Transport(), Retry: heed.RetryPolicy{TellServer: true}},
			}
			resp, err := c.Get(srv.URL)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, test.status, resp.StatusCode, fmt.Sprint(test.within))
		}
		assert.Equal(t, 2, asked, "neither came back")
	})
}
