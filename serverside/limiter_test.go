package serverside_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func TestResponsesOfALimitedRouteHaveTheFields(t *testing.T) {
	type writer = http.ResponseWriter
	handlers := map[string]func(w writer){
		"200":   func(w writer) { io.WriteString(w, "ok") },
		"201":   func(w writer) { w.WriteHeader(201) },
		"204":   func(w writer) { w.WriteHeader(204) },
		"302":   func(w writer) { w.WriteHeader(302) },
		"304":   func(w writer) { w.WriteHeader(304) },
		"404":   func(w writer) { w.WriteHeader(404) },
		"500":   func(w writer) { w.WriteHeader(500) },
		"none":  func(writer) {},
		"panic": func(writer) { panic("a fault in the handler") },
	}
	for name, handle := range handlers {
		synctest.Test(t, func(t *testing.T) {
			h := recovering(limit(t, quota.PerMinute(60)).Wrap(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { handle(w) })))
			for _, method := range []string{"GET", "HEAD", "POST"} {
				w := askFrom(method+":1", h, method, "/")
				assert.Equal(t, http.Header{
					"Ratelimit-Policy":      {`"api";q=60;w=60;heed-algorithm=token-bucket`},
					"Ratelimit":             {`"api";r=59;t=1`},
					"X-Ratelimit-Limit":     {"60"},
					"X-Ratelimit-Remaining": {"59"},
					"X-Ratelimit-Reset":     {"946684801"}, // time in a bubble starts at 946684800
				}, limitFields(w.Header()), "%s %s", method, name)
				assert.Empty(t, w.Header()["Retry-After"])
				assert.Empty(t, w.Header()["Cache-Control"])
			}
		})
	}
}

func TestCostBelowOneCountsAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cost := range []int64{0, -1, -1 << 63} {
			rules := oneRule(quota.PerMinute(2))
			rules[0].Cost = func(*http.Request) int64 { return cost }
			h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
			spend(t, h, 2)
			assert.Equal(t, 429, ask(h, "GET", "/").Code, cost)
		}
	})
}

func TestHugeCostIsDenied(t *testing.T) {
	rules := oneRule(quota.PerMinute(2))
	rules[0].Cost = func(*http.Request) int64 { return 1<<63 - 1 }
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestTightestPolicyComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // 50/s with 40 left, 500/min with 100 left
		second := quota.Policy{Name: "second", Quota: 50, Window: time.Second}
		minute := quota.Policy{Name: "minute", Quota: 500, Window: time.Minute}
		left := map[string]int64{"api/second": 40, "api/minute": 100}
		scripted := store(func(_ context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			for _, c := range charges {
				dst = append(dst, quota.Decision{Allowed: true, Remaining: left[c.Limit.Name()], ResetAfter: time.Second,
					NextAfter: time.Second, At: time.Now()})
			}
			return dst, nil
		})
		h := must(t, serverside.Config{Rules: oneRule(second, minute), Store: scripted}).Wrap(new(ok))
		w := ask(h, "GET", "/")
		assert.Equal(t, "500", w.Header().Get("X-RateLimit-Limit"))
		assert.Equal(t, "100", w.Header().Get("X-RateLimit-Remaining"))
		assert.Equal(t, `"minute";r=100;t=1, "second";r=40;t=1`, w.Header().Get("RateLimit"))
		assert.Equal(t, `"second";q=50;w=1;heed-algorithm=token-bucket, "minute";q=500;w=60;heed-algorithm=token-bucket`,
			w.Header().Get("RateLimit-Policy"))
	})
}

func TestLaterResetComesFirstAmongEqualPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limit(t, quota.Policy{Name: "short", Quota: 3, Window: time.Second},
			quota.Policy{Name: "long", Quota: 3, Window: time.Hour}).Wrap(new(ok))
		assert.Equal(t, `"long";r=2;t=1200, "short";r=2;t=1`, ask(h, "GET", "/").Header().Get("RateLimit"))
	})
}

func TestTightnessIsRelativeToTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // two fit into the leaky bucket
		h := limit(t, quota.Policy{Name: "token", Quota: 10, Window: time.Minute},
			quota.Policy{Name: "leaky", Quota: 10, Window: time.Minute, Burst: 1, Algorithm: quota.LeakyBucket}).Wrap(new(ok))
		assert.Equal(t, `"leaky";r=1;t=6, "token";r=9;t=6`, ask(h, "GET", "/").Header().Get("RateLimit"))
	})
}

func TestLongestWaitOfDenyingPoliciesIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limit(t, quota.Policy{Name: "second", Quota: 2, Window: time.Second},
			quota.Policy{Name: "hour", Quota: 2, Window: time.Hour},
			quota.Policy{Name: "day", Quota: 1000, Window: 24 * time.Hour}).Wrap(new(ok))
		spend(t, h, 2)
		w := ask(h, "GET", "/")
		require.Equal(t, 429, w.Code)
		assert.Equal(t, "1800", w.Header().Get("Retry-After"))
		assert.Equal(t, "2", w.Header().Get("X-RateLimit-Limit"))
		assert.Equal(t, "946688400", w.Header().Get("X-RateLimit-Reset"), "an hour from now")
		assert.Equal(t, []string{"hour", "second"}, problemOf(t, w).Violated)
	})
}

func TestResetIsRoundedUpFromTheStoresTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Unix(1000, 900_000_000)
		decision := answering(quota.Decision{
			Allowed: true, Remaining: 1, NextAfter: time.Second, ResetAfter: time.Second, At: at,
		})
		h := must(t, serverside.Config{Rules: oneRule(quota.PerMinute(60)), Store: decision}).Wrap(new(ok))
		assert.Equal(t, "1002", ask(h, "GET", "/").Header().Get("X-RateLimit-Reset"))
	})
}

func TestRemainingIsNeverMoreThanTheLimit(t *testing.T) {
	h := limit(t, quota.Policy{Quota: 60, Window: time.Minute, Burst: 100}).Wrap(new(ok))
	w := ask(h, "GET", "/")
	assert.Equal(t, "60", w.Header().Get("X-RateLimit-Remaining"))
	assert.Equal(t, `"api";r=60`, w.Header().Get("RateLimit"))
}

func TestAllMatchingRulesAreChargedOrNone(t *testing.T) {
	for _, twist := range []bool{false, true} {
		user := serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") })
		rules := []serverside.Rule{
			{Name: "address", Policies: []quota.Policy{quota.PerHour(4)}},
			{Name: "user", Policies: []quota.Policy{quota.PerHour(1)}, Key: user},
		}
		if twist {
			rules[0], rules[1] = rules[1], rules[0]
		}
		h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
		require.Equal(t, 200, ask(h, "GET", "/", "X-User", "ann").Code)
		for range 20 {
			w := ask(h, "GET", "/", "X-User", "ann")
			require.Equal(t, 429, w.Code)
			require.Equal(t, []string{"user"}, problemOf(t, w).Violated)
			require.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
		}
		for _, user := range []string{"bob", "cid", "dan"} {
			require.Equal(t, 200, ask(h, "GET", "/", "X-User", user).Code)
		}
		w := ask(h, "GET", "/", "X-User", "eve")
		assert.Equal(t, []string{"address"}, problemOf(t, w).Violated)
	}
}

// A few charges are decided without allocating, more with.
func TestManyPoliciesAreDecidedLikeAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n <= 20; n++ {
			var rules []serverside.Rule
			var policies, state []string
			for i := range n {
				name, q := fmt.Sprintf("r%d", i), int64(2+i)
				rules = append(rules, serverside.Rule{Name: name, Policies: []quota.Policy{{Quota: q, Window: time.Hour}}},
					serverside.Rule{Name: "dry " + name, Policies: []quota.Policy{{Quota: 1, Window: time.Hour}}, DryRun: true})
				policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=3600;heed-algorithm=token-bucket`, name, q))
				state = append(state, fmt.Sprintf(`"%s";r=%d;t=%d`, name, i, (3600+q-1)/q))
			}
			var events eventLog
			h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
			spend(t, h, 1)
			require.Empty(t, events.events)
			w := ask(h, "GET", "/")
			require.Equal(t, 200, w.Code)
			require.Equal(t, strings.Join(policies, ", "), w.Header().Get("RateLimit-Policy"))
			require.Equal(t, strings.Join(state, ", "), w.Header().Get("RateLimit"))
			require.Len(t, events.events, 1)
			require.Len(t, events.events[0].Policies, n, "the dry runs that would deny")

			w = ask(h, "GET", "/")
			require.Equal(t, 429, w.Code)
			require.Equal(t, []string{"r0"}, problemOf(t, w).Violated)
			require.Equal(t, "1800", w.Header().Get("Retry-After"))
			require.True(t, strings.HasPrefix(w.Header().Get("RateLimit"), `"r0";r=0;t=1800`))
			require.Equal(t, serverside.Denied, events.events[2].Kind)
			time.Sleep(2 * time.Hour)
		}
	})
}

func TestDryRunCountsAndReportsToAudit(t *testing.T) {
	var events eventLog
	rules := []serverside.Rule{
		{Name: "real", Policies: []quota.Policy{quota.PerHour(3)}},
		{Name: "trial", Policies: []quota.Policy{{Name: "strict", Quota: 1, Window: time.Hour}}, DryRun: true},
	}
	h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
	for range 3 {
		w := ask(h, "GET", "/")
		require.Equal(t, 200, w.Code)
		require.Equal(t, `"real";q=3;w=3600;heed-algorithm=token-bucket`, w.Header().Get("RateLimit-Policy"))
	}
	require.Equal(t, []serverside.EventKind{serverside.WouldDeny, serverside.WouldDeny}, events.kinds())
	assert.Equal(t, "trial", events.events[0].Rule)
	assert.Equal(t, []string{"strict"}, events.events[0].Policies)
	assert.InDelta(t, time.Hour, events.events[0].Wait, float64(time.Minute))
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestDryRunWritesNoFields(t *testing.T) {
	rules := oneRule(quota.PerHour(1))
	rules[0].DryRun = true
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	for range 3 {
		w := ask(h, "GET", "/")
		require.Equal(t, 200, w.Code)
		require.Empty(t, limitFields(w.Header()))
	}
}

func TestAuditGetsADenialWithoutSecrets(t *testing.T) {
	var events eventLog
	rules := []serverside.Rule{{Name: "api", Pattern: "/v1/", Stage: serverside.AfterAuth,
		Key:      serverside.Header("X-Api-Key"),
		Policies: []quota.Policy{quota.PerHour(1)}}}
	h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
	for range 2 {
		ask(h, "GET", "/v1/", "X-Api-Key", "s3cr3t")
	}
	require.Len(t, events.events, 1)
	e := events.events[0]
	assert.Equal(t, "denied", e.Kind.String())
	assert.Equal(t, "api", e.Rule)
	assert.Equal(t, "/v1/", e.Pattern)
	assert.Equal(t, []string{"api"}, e.Policies)
	assert.Len(t, e.Key, 32)
	assert.InDelta(t, time.Hour, e.Wait, float64(time.Minute))
}

func TestFieldsOnDenialOnly(t *testing.T) {
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), FieldsOnDenialOnly: true}).Wrap(new(ok))
	assert.Empty(t, limitFields(ask(h, "GET", "/").Header()))
	assert.Len(t, limitFields(ask(h, "GET", "/").Header()), 5)
}

func TestNestedWrapsOfOneLimiterChargeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, quota.PerHour(10))
		mux := http.NewServeMux()
		mux.Handle("/v1/", l.Wrap(l.Wrap(new(ok))))
		h := l.Wrap(http.StripPrefix("/api", mux))
		assert.Equal(t, []string{`"api";r=9;t=360`}, ask(h, "GET", "/api/v1/x").Header()["Ratelimit"])
		assert.Equal(t, []string{`"api";r=8;t=360`}, ask(h, "GET", "/api/v1/x").Header()["Ratelimit"])
	})
}

func TestBothOfTwoLimitersWriteFields(t *testing.T) {
	inner := must(t, serverside.Config{
		Rules: []serverside.Rule{{Name: "inner", Policies: []quota.Policy{quota.PerHour(5)}}},
	})
	h := limit(t, quota.PerHour(10)).Wrap(inner.Wrap(new(ok)))
	assert.Equal(t, []string{`"api";r=9;t=360`, `"inner";r=4;t=720`}, ask(h, "GET", "/").Header()["Ratelimit"])
}

func TestConcurrentRequestsAreCountedExactly(t *testing.T) {
	l := limit(t, quota.PerDay(100))
	var mu sync.Mutex
	remaining := make(map[string]int)
	h := l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() {
			w := ask(h, "GET", "/")
			mu.Lock()
			defer mu.Unlock()
			if w.Code == 200 {
				remaining[w.Header().Get("X-RateLimit-Remaining")]++
			}
		})
	}
	group.Wait()
	require.Len(t, remaining, 100, "each of 99 … 0 once")
	for left, n := range remaining {
		assert.Equal(t, 1, n, left)
	}
}

func TestRequestAllocatesLittle(t *testing.T) {
	for name, rules := range map[string][]serverside.Rule{
		"one rule":      oneRule(many(1)...),
		"four policies": oneRule(many(4)...),
		"a pattern":     {{Name: "api", Pattern: "GET example.com/v1/{id}", Policies: many(1)}},
	} {
		h := must(t, serverside.Config{Rules: rules}).Wrap(http.HandlerFunc(bare))
		w, r := null{make(http.Header)}, request("GET", "http://example.com/v1/things", "192.0.2.1:1234")
		allocs := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		})
		assert.Len(t, w.header, 5, name)
		assert.LessOrEqual(t, allocs, 6.0, name)
	}
}

// Handlers around a Limiter, such as a logger, see the Request.Pattern that the router sets.
func TestOuterHandlerSeesThePattern(t *testing.T) {
	l := limit(t, quota.PerMinute(10))
	mux := http.NewServeMux()
	mux.Handle("GET /things/{id}", new(ok))
	l.Wrap(new(ok))
	r := request("GET", "/things/7", "192.0.2.1:1")
	assert.Equal(t, 200, serve(l.Wrap(mux), r).Code)
	assert.Equal(t, "GET /things/{id}", r.Pattern)
}
