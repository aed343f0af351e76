package serverside_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func TestDeniedRequestIsAdmittedAfterRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // 5 per minute is a token every 12 s
		handler := new(ok)
		h := limit(t, quota.PerMinute(5)).Wrap(handler)
		spend(t, h, 5)
		time.Sleep(500 * time.Millisecond)

		w := ask(h, "GET", "/")
		require.Equal(t, 429, w.Code)
		assert.Equal(t, []string{"12"}, w.Header()["Retry-After"])
		assert.Equal(t, `"api";r=0;t=12`, w.Header().Get("RateLimit"))
		p := problemOf(t, w)
		require.Equal(t, int64(11_500), *p.RetryAfterMS)

		time.Sleep(11_500*time.Millisecond - time.Microsecond)
		require.Equal(t, 429, ask(h, "GET", "/").Code)
		time.Sleep(time.Microsecond)
		require.Equal(t, 200, ask(h, "GET", "/").Code)
		assert.Equal(t, 6, handler.served)
	})
}

func TestRetryAfterIsRoundedUpToAtLeastOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			wait   time.Duration
			field  string
			millis int64
		}{
			{time.Microsecond, "1", 1},
			{time.Millisecond, "1", 1},
			{time.Second, "1", 1000},
			{time.Second + time.Microsecond, "2", 1001},
			{1001 * time.Millisecond, "2", 1001},
			{time.Hour, "3600", 3_600_000},
		} {
			denies := answering(quota.Decision{RetryAfter: c.wait, NextAfter: c.wait, ResetAfter: c.wait, At: time.Now()})
			w := ask(must(t, serverside.Config{Rules: oneRule(quota.PerMinute(5)), Store: denies}).Wrap(new(ok)), "GET", "/")
			assert.Equal(t, []string{c.field}, w.Header()["Retry-After"], c.wait)
			assert.Equal(t, `"api";r=0;t=`+c.field, w.Header().Get("RateLimit"), c.wait)
			assert.Equal(t, c.millis, *problemOf(t, w).RetryAfterMS, c.wait)
		}
	})
}

func TestDenialIsAnUncachedAnonymousProblemDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := serverside.Join(serverside.Header("Authorization"), serverside.KeyFunc(func(*http.Request) string {
			return "tenant-7"
		}))
		rules := []serverside.Rule{
			{Name: "api", Stage: serverside.AfterAuth, Policies: []quota.Policy{quota.PerMinute(1)}, Key: key},
		}
		h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
		ask(h, "GET", "/", "Authorization", "Bearer s3cr3t")
		w := ask(h, "GET", "/", "Authorization", "Bearer s3cr3t")

		require.Equal(t, 429, w.Code)
		assert.Equal(t, http.Header{
			"Ratelimit-Policy":      {`"api";q=1;w=60;heed-algorithm=token-bucket`},
			"Ratelimit":             {`"api";r=0;t=60`},
			"X-Ratelimit-Limit":     {"1"},
			"X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Reset":     {"946684860"},
			"Retry-After":           {"60"},
			"Cache-Control":         {"no-store"},
			"Content-Type":          {"application/problem+json"},
		}, w.Header())
		p := problemOf(t, w)
		assert.Equal(t, serverside.ProblemQuota, p.Type)
		assert.Equal(t, 429, p.Status)
		assert.Equal(t, "Quota Exceeded", p.Title)
		assert.Equal(t, []string{"api"}, p.Violated)
		assert.Equal(t, int64(60_000), *p.RetryAfterMS)
		assert.Equal(t, "The quota is used up: api. Retry in 60 s.", p.Detail)
		for _, secret := range []string{"s3cr3t", "tenant-7", "192.0.2.1"} {
			assert.NotContains(t, w.Body.String(), secret)
		}
	})
}

func TestDenialOfHEADHasNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limit(t, quota.PerMinute(1)).Wrap(new(ok))
		spend(t, h, 1)
		w := ask(h, "HEAD", "/")
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "60", w.Header().Get("Retry-After"))
		assert.Empty(t, w.Body.String())
	})
}

func TestDenialDoesNotReadTheBody(t *testing.T) {
	h := limit(t, quota.PerMinute(1)).Wrap(new(ok))
	spend(t, h, 1)
	r := httptest.NewRequest("POST", "/", untouchable{t})
	r.RemoteAddr = "192.0.2.1:1234"
	assert.Equal(t, 429, serve(h, r).Code)
}

type untouchable struct{ t *testing.T }

func (b untouchable) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

func TestRequestCostingMoreThanTheBurstHasNoRetryAfter(t *testing.T) {
	rules := oneRule(quota.PerMinute(5))
	rules[0].Cost = func(r *http.Request) int64 { return r.ContentLength }
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))

	w := serve(h, httptest.NewRequest("POST", "/", strings.NewReader("123456")))
	require.Equal(t, 429, w.Code)
	assert.NotContains(t, w.Header(), "Retry-After")
	assert.Equal(t, "false", w.Header().Get("X-Should-Retry"))
	p := problemOf(t, w)
	assert.Equal(t, serverside.ProblemNever, p.Type)
	assert.Nil(t, p.RetryAfterMS)
	assert.Equal(t, "5", w.Header().Get("X-RateLimit-Remaining"))

	assert.Equal(t, 200, serve(h, httptest.NewRequest("POST", "/", strings.NewReader("12345"))).Code)
	assert.Equal(t, 429, serve(h, httptest.NewRequest("POST", "/", strings.NewReader("1"))).Code)
}

func TestRetryAfterIsTheLongestWaitWhateverResetsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decisions := answering(quota.Decision{RetryAfter: 5 * time.Second, ResetAfter: time.Hour},
			quota.Decision{RetryAfter: 10 * time.Second, ResetAfter: time.Minute})
		h := must(t, serverside.Config{Rules: oneRule(quota.PerMinute(1), quota.PerHour(1)), Store: decisions}).Wrap(new(ok))
		assert.Equal(t, "10", ask(h, "GET", "/").Header().Get("Retry-After"))
	})
}

func TestNeverBeatsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decisions := answering(quota.Decision{RetryAfter: time.Hour}, quota.Decision{Never: true})
		h := must(t, serverside.Config{Rules: oneRule(quota.PerMinute(1), quota.PerHour(1)), Store: decisions}).Wrap(new(ok))
		w := ask(h, "GET", "/")
		assert.Empty(t, w.Header()["Retry-After"])
		assert.Equal(t, []string{"api/1h", "api/1m"}, problemOf(t, w).Violated)
	})
}

func TestDenialWithoutAWaitSaysOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ask(must(t, serverside.Config{Rules: oneRule(quota.PerMinute(1)),
			Store: answering(quota.Decision{})}).Wrap(new(ok)), "GET", "/")
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.Equal(t, int64(1), *problemOf(t, w).RetryAfterMS)
	})
}

func TestDenyCannotChangeTheStatus(t *testing.T) {
	for _, c := range []struct {
		name string
		deny func(http.ResponseWriter, *http.Request, serverside.Denial)
		body string
	}{
		{"nothing", func(http.ResponseWriter, *http.Request, serverside.Denial) {}, ""},
		{"body only", func(w http.ResponseWriter, _ *http.Request, d serverside.Denial) { io.WriteString(w, d.Rule) },
			"api"},
		{"200", func(w http.ResponseWriter, _ *http.Request, d serverside.Denial) {
			w.WriteHeader(200)
			w.WriteHeader(201)
			io.WriteString(w, strings.Join(d.Policies, ","))
		}, "api"},
		{"its own", func(w http.ResponseWriter, _ *http.Request, d serverside.Denial) {
			http.Error(w, d.RetryAfter.Round(time.Minute).String(), d.Status)
		}, "1h0m0s\n"},
	} {
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Deny: c.deny}).Wrap(new(ok))
		spend(t, h, 1)
		w := ask(h, "GET", "/")
		assert.Equal(t, 429, w.Code, c.name)
		assert.Equal(t, c.body, w.Body.String(), c.name)
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"), c.name)
		assert.NotEmpty(t, w.Header().Get("Retry-After"), c.name)
		assert.Empty(t, ask(h, "HEAD", "/").Body.String(), c.name)
	}
}

// Problem documents are written by hand, and must be JSON for encoding/json.
func FuzzProblemIsJSON(f *testing.F) {
	for _, name := range []string{"api", `"`, `\`, `\"`, `a","b`, "<script>&", " ", "100%", strings.Repeat(`\"`, 300)} {
		f.Add(name, int64(1500*time.Millisecond), false)
		f.Add(name, int64(1<<62), true)
	}
	f.Fuzz(func(t *testing.T, name string, wait int64, never bool) {
		if wait = max(wait, 1); never {
			wait = 0
		}
		decision := quota.Decision{Never: never, RetryAfter: time.Duration(wait)}
		var events eventLog
		l, err := serverside.New(serverside.Config{Store: answering(decision, decision), StoreTimeout: time.Minute,
			Audit: events.add,
			Rules: oneRule(quota.Policy{
				Name: name, Quota: 1, Window: time.Second,
			}, quota.Policy{Name: name + "2", Quota: 1, Window: time.Second})})
		if err != nil {
			return // an invalid name
		}
		w := ask(l.Wrap(new(ok)), "GET", "/")
		names := events.events[0].Policies
		want := problem{Status: 429, Violated: names, Type: serverside.ProblemNever, Title: "Request Exceeds Quota",
			Detail: fmt.Sprintf("The request costs more than the quota ever holds: %s.", strings.Join(names, ", "))}
		if !never {
			millis := (wait-1)/1e6 + 1
			want.Type, want.Title, want.RetryAfterMS = serverside.ProblemQuota, "Quota Exceeded", &millis
			want.Detail = fmt.Sprintf("The quota is used up: %s. Retry in %d s.", strings.Join(names, ", "), (wait-1)/1e9+1)
		}
		require.Equal(t, want, problemOf(t, w))
		require.Len(t, names, 2)
	})
}

func TestDenialAllocatesLittle(t *testing.T) {
	h := must(t, serverside.Config{Rules: oneRule(quota.PerDay(1)), Audit: silent}).Wrap(http.HandlerFunc(bare))
	w, r := null{make(http.Header)}, request("GET", "http://example.com/", "192.0.2.1:1234")
	h.ServeHTTP(w, r)
	allocs := testing.AllocsPerRun(1000, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
	require.Len(t, w.header, 8)
	require.LessOrEqual(t, allocs, 11.0)
}
