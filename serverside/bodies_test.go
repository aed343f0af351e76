package serverside_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

type deny = func(http.ResponseWriter, *http.Request, serverside.Denial)

var bodies = map[string]deny{
	"default":  nil,
	"envelope": serverside.EnvelopeBody,
	"limit":    serverside.LimitBody,
	"detail":   serverside.DetailBody,
	"flat":     serverside.FlatBody,
	"coded":    serverside.CodedProblem("https://forja.dev/errors/rate_limited"),
	"timed":    serverside.TimedProblem("https://api.example.com/problems/rate-limited"),
}

func TestBodiesHaveTheirFormats(t *testing.T) {
	for _, c := range []struct {
		body   string
		policy quota.Policy
		want   string
		kind   string
	}{
		{"envelope", quota.PerMinute(5),
			`{"error":{"code":"rate_limited","message":"Too many requests. Retry after 12 seconds.","request_id":"01HXY"}}`,
			"application/json"},
		{"coded", quota.PerSecond(50),
			`{"type":"https://forja.dev/errors/rate_limited","title":"Rate Limited","status":429,` +
				`"detail":"Rate limit exceeded: 51 requests per second exceeded (limit: 50)","code":"RATE_LIMITED"}`,
			"application/problem+json"},
		{"detail", quota.PerMinute(5), `{"detail":"Rate limit exceeded. Please try again later."}`, "application/json"},
		{"flat", quota.PerMinute(5), `{"error":"Rate limit exceeded","message":"Please try again later","retryAfter":12}`,
			"application/json"},
		{"timed", quota.Policy{Quota: 100, Window: time.Minute, Algorithm: quota.SlidingLog},
			`{"type":"https://api.example.com/problems/rate-limited","title":"Too Many Requests","status":429,` +
				`"detail":"API rate limit exceeded. Limit: 100 requests per minute.","retryAfter":60}`,
			"application/problem+json"},
		{"limit", quota.Policy{Quota: 1000, Window: time.Hour, Algorithm: quota.FixedWindow},
			`{"error":{"code":"rate_limit_exceeded","message":"Rate limit exceeded. Maximum 1000 requests per hour.",` +
				`"retry_after":3600,"limit":1000,"reset_at":"2000-01-01T01:00:00Z"}}`, "application/json"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := must(t, serverside.Config{Rules: oneRule(c.policy), Deny: bodies[c.body], Audit: silent}).Wrap(new(ok))
			spend(t, h, int(c.policy.Quota))
			w := ask(h, "GET", "/", "X-Request-Id", "01HXY")
			assert.Equal(t, 429, w.Code, c.body)
			assert.Equal(t, c.want+"\n", w.Body.String(), c.body)
			assert.Equal(t, c.kind, w.Header().Get("Content-Type"), c.body)
		})
	}
}

func TestRequestIDIsEchoedUnlessTooLong(t *testing.T) {
	answer := func(fields ...string) string {
		r := request("GET", "/", "192.0.2.1:1")
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		w := httptest.NewRecorder()
		serverside.EnvelopeBody(w, r, serverside.Denial{Status: 429, RetryAfter: time.Second})
		return w.Body.String()
	}
	assert.NotContains(t, answer(), "request_id")
	assert.NotContains(t, answer("X-Request-Id", string(make([]byte, 5000))), "request_id")
	assert.Contains(t, answer("X-Request-Id", `"}`), `"request_id":"\"}"`)
}

func TestBodyHasTheNumbersOfTheHeader(t *testing.T) {
	calendar := quota.Policy{Quota: 1, Algorithm: quota.FixedWindow, Calendar: quota.Day}
	for kind, cfg := range map[string]serverside.Config{
		"quota":    {Rules: oneRule(quota.Policy{Quota: 1, Window: 90 * time.Second})},
		"calendar": {Rules: oneRule(calendar)},
		"never": {
			Rules: []serverside.Rule{
				{Name: "api", Policies: []quota.Policy{quota.PerHour(1)}, Cost: func(*http.Request) int64 { return 2 }},
			},
		},
		"blocked": {Rules: []serverside.Rule{{
			Name: "api", Policies: []quota.Policy{quota.PerHour(1)},
			Key:    serverside.KeyFunc(func(*http.Request) string { return "eve" }),
			Limits: serverside.LimitTable{"eve": {Blocked: true}},
		}}},
		"outage": {Rules: oneRule(quota.PerHour(1)), Store: store(down), OnStoreError: serverside.FailClosed},
		"overload": {
			Rules: []serverside.Rule{
				perHour("ip", "", 9),
				{Name: "all", Stage: serverside.Overload, Status: 503, Policies: []quota.Policy{quota.PerHour(1)}},
			},
		},
	} {
		for name, body := range bodies {
			synctest.Test(t, func(t *testing.T) {
				cfg.Deny, cfg.Audit = body, silent
				h := must(t, cfg).Wrap(new(ok))
				ask(h, "GET", "/")
				time.Sleep(700 * time.Millisecond)
				w := ask(h, "GET", "/")
				checkNumbers(t, kind+" "+name, w)
			})
		}
	}
}

func checkNumbers(t *testing.T, name string, w *httptest.ResponseRecorder) {
	var flat map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &flat), name)
	if inner, ok := flat["error"].(map[string]any); ok {
		flat = inner
	}
	assert.GreaterOrEqual(t, w.Code, 403, name)
	for _, key := range []string{"retryAfter", "retry_after"} {
		if value, ok := flat[key].(float64); ok {
			assert.Equal(t, strconv.Itoa(int(value)), w.Header().Get("Retry-After"), name)
		}
	}
	if value, ok := flat["status"].(float64); ok {
		assert.Equal(t, w.Code, int(value), name)
	}
	if value, ok := flat["reset_at"].(string); ok && value != "" {
		at, err := time.Parse(time.RFC3339, value)
		assert.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(at.Unix(), 10), w.Header().Get("X-RateLimit-Reset"), name)
	}
	if w.Header().Get("Retry-After") == "" {
		assert.NotRegexp(t, `(?i)retry|again later`, w.Body.String(), "%s: never invites retries", name)
	}
}

func TestBodiesForRequestsInFlight(t *testing.T) {
	for name, want := range map[string]string{
		"envelope": `{"error":{"code":"too_many_at_once","message":"Too many requests at once. Retry after 1 second."}}`,
		"limit": `{"error":{"code":"too_many_at_once","message":"Too many requests at once.",` +
			`"retry_after":1,"limit":20}}`,
		"flat": `{"error":"Too many requests at once","message":"Please try again later","retryAfter":1}`,
	} {
		w := httptest.NewRecorder()
		bodies[name](w, request("GET", "/", "192.0.2.1:1"), serverside.Denial{
			Status: 429, RetryAfter: time.Second, InFlight: true, Quota: 20,
		})
		assert.Equal(t, want+"\n", w.Body.String())
	}
}

func TestAdviceFitsTheCauseOfADenial(t *testing.T) {
	for want, d := range map[string]serverside.Denial{
		"try again later":     {Status: 429, RetryAfter: time.Second},
		"do not try again":    {Status: 403, Never: true, Blocked: true},
		"correct the request": {Status: 400, Never: true, Unread: true},
		"send less at once":   {Status: 429, Never: true},
	} {
		for _, name := range []string{"detail", "flat"} {
			w := httptest.NewRecorder()
			bodies[name](w, request("GET", "/", "192.0.2.1:1"), d)
			assert.Contains(t, w.Body.String(), "Please "+want, name)
		}
	}
}

func TestProblemHasTheCostThatFitsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerMinute(10), quota.PerHour(100)},
			Cost: func(r *http.Request) int64 { return r.ContentLength }}}
		h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
		post := func(n int) *httptest.ResponseRecorder {
			r := request("POST", "http://example.com/", "192.0.2.1:1")
			r.ContentLength = int64(n)
			return serve(h, r)
		}
		require.Equal(t, 200, post(6).Code)
		w := post(8)
		require.Equal(t, 429, w.Code)
		var p struct {
			Cost    int64 `json:"cost"`
			FitsNow int64 `json:"fits_now"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		assert.Equal(t, int64(8), p.Cost)
		assert.Equal(t, int64(4), p.FitsNow)
		assert.Equal(t, 200, post(int(p.FitsNow)).Code)
		assert.NotContains(t, post(1).Body.String(), "fits_now", "nothing does")
	})
}
