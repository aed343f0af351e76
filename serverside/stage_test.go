package serverside_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// perHour returns a rule for n requests per hour.
func perHour(name, pattern string, n int64) serverside.Rule {
	return serverside.Rule{Name: name, Pattern: pattern, Policies: []quota.Policy{quota.PerHour(n)}}
}

// at returns r in a stage.
func at(stage serverside.Stage, r serverside.Rule) serverside.Rule {
	r.Stage = stage
	return r
}

// by returns r with a key.
func by(key serverside.Key, r serverside.Rule) serverside.Rule {
	r.Key = key
	return r
}

// user is the Key of an authenticated user, named by X-User.
var user = serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") })

// authenticated serves requests with a user, and answers 401 to others.
func authenticated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user(r) == "" {
			w.WriteHeader(401)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// codes counts the statuses of n requests.
func codes(n int, h http.Handler, method, target string, fields ...string) map[int]int {
	count := make(map[int]int)
	for range n {
		count[ask(h, method, target, fields...).Code]++
	}
	return count
}

func TestWrongCredentialsAreLimitedByAddress(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 20), at(serverside.AfterAuth, by(user, perHour("user", "", 5)))}
	l := must(t, serverside.Config{Rules: rules})
	h := l.WrapEarly(authenticated(l.Wrap(new(ok))))
	assert.Equal(t, map[int]int{401: 20, 429: 980}, codes(1000, h, "GET", "/"))
}

func TestDenyingStageKeepsEarlierCharges(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 10), at(serverside.AfterAuth, by(user, perHour("user", "", 3)))}
	var events eventLog
	l := must(t, serverside.Config{Rules: rules, Audit: events.add, Style: ratelimit.Draft11})
	h := l.WrapEarly(authenticated(l.Wrap(new(ok))))

	assert.Equal(t, map[int]int{200: 3, 429: 1}, codes(4, h, "GET", "/", "X-User", "ann"), "the key is used up")
	assert.Equal(t, map[int]int{200: 3}, codes(3, h, "GET", "/", "X-User", "bob"), "another key on that address is not")
	assert.Equal(t, map[int]int{200: 3, 429: 1}, codes(4, h, "GET", "/", "X-User", "cid"), "the address is used up")
	h2 := l.Wrap(new(ok)) // without WrapEarly, this checks all stages
	assert.Equal(t, 429, ask(h2, "GET", "/", "X-User", "dan").Code)
	assert.Equal(t, 200, askFrom("192.0.2.2:1", h2, "GET", "/", "X-User", "dan").Code)
	require.Len(t, events.events, 3)
	assert.Equal(t, "user", events.events[0].Rule)
	assert.Equal(t, "ip", events.events[1].Rule)
	assert.Equal(t, "ip", events.events[2].Rule)
}

func TestNestedWrapsCheckEachRuleOnce(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 100), at(serverside.AfterAuth, perHour("user", "", 100)),
		at(serverside.Overload, perHour("all", "", 100))}
	l := must(t, serverside.Config{Rules: rules, Style: ratelimit.Draft11})
	h := l.WrapEarly(l.WrapEarly(l.Wrap(l.WrapEarly(l.Wrap(new(ok))))))
	for _, left := range []string{"99", "98"} { // of the client's own quota
		w := ask(h, "GET", "/")
		assert.Equal(t, 2, strings.Count(strings.Join(w.Header()["Ratelimit"], ","), ";r="+left+";"),
			w.Header()["Ratelimit"])
	}
}

func TestFieldsShowTheTightestOfBothStages(t *testing.T) {
	for _, c := range []struct {
		early, late int64
		want        string
	}{{100, 2, "2"}, {2, 100, "2"}, {5, 5, "5"}} {
		rules := []serverside.Rule{perHour("early", "", c.early), at(serverside.AfterAuth, perHour("late", "", c.late))}
		l := must(t, serverside.Config{Rules: rules})
		w := ask(l.WrapEarly(l.Wrap(new(ok))), "GET", "/")
		assert.Equal(t, []string{c.want}, w.Header()["X-Ratelimit-Limit"])
		assert.Len(t, w.Header()["Ratelimit"], 2, "but lists tell of both")
	}
}

func TestDenialOfALaterStageIsShown(t *testing.T) {
	rules := []serverside.Rule{perHour("early", "", 2), at(serverside.AfterAuth, perHour("late", "", 1))}
	l := must(t, serverside.Config{Rules: rules})
	h := l.WrapEarly(l.Wrap(new(ok)))
	spend(t, h, 1)
	w := ask(h, "GET", "/")
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
	assert.Equal(t, "late", problemOf(t, w).Violated[0])
}

func TestMostSpecificRuleIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []serverside.Rule{
			at(serverside.Overload, perHour("overload", "", 1)),
			perHour("ip", "", 1),
			perHour("tree", "/v1/", 1),
			perHour("endpoint", "GET /v1/search", 1),
			perHour("any", "/v1/{name}", 1),
			perHour("both", "", 1),
		}
		var reported []string
		for len(rules) > 1 {
			var events eventLog
			h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
			require.Equal(t, 200, ask(h, "GET", "/v1/search").Code)
			require.Equal(t, 429, ask(h, "GET", "/v1/search").Code)
			first := events.events[0].Rule
			reported = append(reported, first)
			for i := range rules {
				if rules[i].Name == first {
					rules = append(rules[:i:i], rules[i+1:]...)
					break
				}
			}
		}
		assert.Equal(t, []string{"endpoint", "any", "tree", "ip", "both"}, reported)
	})
}

func TestStageBeatsSpecificity(t *testing.T) {
	rules := []serverside.Rule{at(serverside.AfterAuth, perHour("endpoint", "GET /v1/search", 1)), perHour("ip", "", 1)}
	var events eventLog
	h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
	ask(h, "GET", "/v1/search")
	ask(h, "GET", "/v1/search")
	assert.Equal(t, "ip", events.events[0].Rule)
	assert.Equal(t, []string{"ip", "endpoint"}, events.events[0].Policies, "both deny")
}

func TestOverloadRuleCountsAllClientsAndMayAnswer503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := at(serverside.Overload, perHour("all", "", 10))
		guard.Status = 503
		handler := new(ok)
		h := must(t, serverside.Config{Rules: []serverside.Rule{perHour("ip", "", 4), guard}}).Wrap(handler)
		for peer, want := range map[string]map[int]int{"192.0.2.1:1": {200: 4, 429: 6}} {
			count := make(map[int]int)
			for range 10 {
				count[askFrom(peer, h, "GET", "/").Code]++
			}
			assert.Equal(t, want, count)
		}
		for range 3 {
			require.Equal(t, 200, askFrom("192.0.2.2:1", h, "GET", "/").Code, "what a rule denied was not counted")
			require.Equal(t, 200, askFrom("192.0.2.3:1", h, "GET", "/").Code)
		}
		w := askFrom("192.0.2.4:1", h, "GET", "/")
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "360", w.Header().Get("Retry-After"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		p := problemOf(t, w)
		assert.Equal(t, serverside.ProblemOutage, p.Type)
		assert.Equal(t, "The server is overloaded. Retry in 360 s.", p.Detail)
		assert.Equal(t, 10, handler.served)

		w = askFrom("192.0.2.1:1", h, "GET", "/")
		assert.Equal(t, 429, w.Code, "the client's own quota comes first")
	})
}

func TestFaultsOfRules(t *testing.T) {
	per := []quota.Policy{quota.PerMinute(1)}
	_, err := serverside.New(serverside.Config{
		Exempt: []string{"", "/", "GET", "/healthZ", "/health"},
		Allow: []serverside.Allow{{}, {Name: "r0", Match: serverside.Peers(), Policies: per},
			{Name: "ops", Match: serverside.Peers(), Policies: []quota.Policy{{}}}},
		Rules: []serverside.Rule{
			{Name: "r0", Policies: per, Stage: 7},
			{Name: "r1", Policies: per, Stage: -1},
			{Name: "r2", Policies: per, Status: 403},
			{Name: "r3", Policies: per, Status: 503},
			{Name: "r4", Policies: per, Status: 200, Stage: serverside.Overload},
			{Name: "r5", MaxInFlight: -1},
			{Name: "r6", Tiers: []serverside.Tier{{Name: "a", Policies: per}}},
			{Name: "r7", Tier: user},
			{Name: "r8", Tier: user, Policies: per, Tiers: []serverside.Tier{{Name: "a"}, {Name: "a", Policies: per}}},
			{Name: "r9", Limits: serverside.LimitTable{"k": {PerDay: -1}}},
		},
	})
	assert.ElementsMatch(t, []string{
		"Exempt[0]", "Exempt[1]", "Exempt[2]", "Exempt[3]",
		"Allow[0].Name", "Allow[0].Match", "Allow[0].Policies", "Allow[1].Name", "Allow[2].Policies[0].Quota",
		"Allow[2].Policies[0].Window",
		"Rules[0].Stage", "Rules[1].Stage", "Rules[2].Status", "Rules[3].Status", "Rules[4].Status",
		"Rules[5].MaxInFlight", "Rules[6].Tier", "Rules[7].Tiers",
		"Rules[8].Policies", "Rules[8].Tiers[0].Policies", "Rules[8].Tiers[1].Name", "Rules[9].Limits", "Rules[9].Policies",
	}, faults(t, err))

	_, err = serverside.New(serverside.Config{Rules: []serverside.Rule{at(serverside.Overload, perHour("all", "", 10))}})
	assert.Equal(t, []string{"Rules"}, faults(t, err), "one client must not be able to take everything")
}

func TestMadeUpKeyNeedsALimitByAddress(t *testing.T) {
	header := serverside.Header("X-Api-Key")
	address := serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))
	for name, c := range map[string]struct {
		rules []serverside.Rule
		key   serverside.Key
		fault []string
	}{
		"alone": {rules: []serverside.Rule{by(header, perHour("a", "", 1))}, fault: []string{"Rules[0].Key"}},
		"cookie": {
			rules: []serverside.Rule{by(serverside.Cookie("sid"), perHour("a", "", 1))},
			fault: []string{"Rules[0].Key"},
		},
		"form": {
			rules: []serverside.Rule{by(serverside.FormValue("user"), perHour("a", "", 1))},
			fault: []string{"Rules[0].Key"},
		},
		"joined": {
			rules: []serverside.Rule{by(serverside.Join(address, header), perHour("a", "", 1))},
			fault: []string{"Rules[0].Key"},
		},
		"first": {
			rules: []serverside.Rule{by(serverside.First(user, header), perHour("a", "", 1))},
			fault: []string{"Rules[0].Key"},
		},
		"the Config's": {rules: []serverside.Rule{perHour("a", "", 1)}, key: header, fault: []string{"Rules[0].Key"}},
		"trust in anyone": {
			rules: []serverside.Rule{by(serverside.ClientIP(netip.MustParsePrefix("0.0.0.0/0")), perHour("a", "", 1))},
			fault: []string{"Rules[0].Key"},
		},
		"IPv6 anyone": {
			rules: []serverside.Rule{by(serverside.ClientIP(netip.MustParsePrefix("::/0")), perHour("a", "", 1))},
			fault: []string{"Rules[0].Key"},
		},
		"elsewhere": {
			rules: []serverside.Rule{by(header, perHour("a", "/v1/", 1)), perHour("b", "/v2/", 1)},
			fault: []string{"Rules[0].Key"},
		},
		"less": {
			rules: []serverside.Rule{by(header, perHour("a", "/v1/", 1)), perHour("b", "GET /v1/", 1)},
			fault: []string{"Rules[0].Key"},
		},
		"beside a header": {
			rules: []serverside.Rule{by(header, perHour("a", "", 1)), by(header, perHour("b", "", 1))},
			fault: []string{"Rules[0].Key", "Rules[1].Key"},
		},
		"everybody": {
			rules: []serverside.Rule{by(header, perHour("a", "", 1)), at(serverside.Overload, perHour("b", "", 1))},
			fault: []string{"Rules[0].Key"},
		},

		"checked":      {rules: []serverside.Rule{at(serverside.AfterAuth, by(header, perHour("a", "", 1)))}},
		"all requests": {rules: []serverside.Rule{by(header, perHour("a", "/v1/", 1)), perHour("b", "", 1)}},
		"those":        {rules: []serverside.Rule{by(header, perHour("a", "GET /v1/x", 1)), perHour("b", "/v1/x", 1)}},
		"more": {
			rules: []serverside.Rule{by(header, perHour("a", "/v1/{x}/y", 1)), by(address, perHour("b", "/{v}/", 1))},
		},
		"one's own": {rules: []serverside.Rule{by(user, perHour("a", "", 1))}},
		"addresses": {rules: []serverside.Rule{by(serverside.Join(address, user), perHour("a", "", 1))}},
	} {
		_, err := serverside.New(serverside.Config{Rules: c.rules, Key: c.key, Audit: silent})
		if c.fault == nil {
			assert.NoError(t, err, name)
			continue
		}
		assert.Equal(t, c.fault, faults(t, err), name)
	}
}

func TestRotatingKeysDoesNotEvadeALimitByAddress(t *testing.T) {
	session := serverside.Join(serverside.ClientIP(), serverside.Cookie("sid"))
	h := must(t, serverside.Config{
		Rules: []serverside.Rule{by(session, perHour("session", "", 5)), perHour("ip", "", 20)},
	}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 5, 429: 1}, codes(6, h, "GET", "/", "Cookie", "sid=a"))
	assert.Equal(t, map[int]int{200: 5, 429: 1}, codes(6, h, "GET", "/", "Cookie", "sid=b"), "two sessions are two keys")
	count := make(map[int]int)
	for i := range 100 {
		count[ask(h, "GET", "/", "Cookie", "sid="+strings.Repeat("x", i)).Code]++
	}
	assert.Equal(t, map[int]int{200: 10, 429: 90}, count)
}

func TestRulesMatchMethodsAndPaths(t *testing.T) {
	rules := []serverside.Rule{perHour("write", "POST /items", 1), perHour("search", "/search", 1)}
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 1, 429: 1}, codes(2, h, "POST", "/items"))
	assert.Equal(t, map[int]int{200: 1, 429: 1}, codes(2, h, "GET", "/search"))
	assert.Equal(t, map[int]int{200: 10}, codes(10, h, "GET", "/items"))
}

func TestTokensOfATenantShareAQuota(t *testing.T) {
	tenantOf := func(r *http.Request) string { return strings.Split(r.Header.Get("Authorization"), "-")[0] }
	for name, c := range map[string]struct {
		key  serverside.Key
		want int
	}{
		"tenant": {serverside.First(serverside.KeyFunc(tenantOf), serverside.Header("Authorization")), 5},
		"token":  {serverside.Header("Authorization"), 10},
	} {
		h := must(t, serverside.Config{
			Rules: []serverside.Rule{at(serverside.AfterAuth, by(c.key, perHour("api", "", 5)))},
		}).Wrap(new(ok))
		admitted := 0
		for i := range 10 {
			if ask(h, "GET", "/", "Authorization", "acme-"+strings.Repeat("t", i)).Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, c.want, admitted, name)
	}
}

func TestManyUsersBehindOneAddress(t *testing.T) {
	perUser := at(serverside.AfterAuth, by(user, perHour("user", "", 60)))
	for name, c := range map[string]struct {
		rules []serverside.Rule
		want  map[int]int
	}{
		"by user":    {[]serverside.Rule{perUser}, map[int]int{200: 100}},
		"by address": {[]serverside.Rule{perUser, perHour("ip", "", 20)}, map[int]int{200: 20, 429: 80}},
	} {
		h := must(t, serverside.Config{Rules: c.rules}).Wrap(new(ok))
		count := make(map[int]int)
		for i := range 100 {
			count[ask(h, "GET", "/", "X-User", strings.Repeat("u", i+1)).Code]++
		}
		assert.Equal(t, c.want, count, name)
	}
}

func TestOneUserOnManyAddresses(t *testing.T) {
	h := must(t, serverside.Config{
		Rules: []serverside.Rule{at(serverside.AfterAuth, by(user, perHour("user", "", 100))), perHour("ip", "", 5)},
	}).Wrap(new(ok))
	admitted := 0
	for i := range 1000 {
		if askFrom(netip.AddrFrom4([4]byte{
			198, 51, byte(i >> 8), byte(i),
		}).String()+":1", h, "GET", "/", "X-User", "ann").Code == 200 {
			admitted++
		}
	}
	assert.Equal(t, 100, admitted)
}

func TestDenialByOneRuleChargesNone(t *testing.T) {
	store := new(quota.Memory)
	rules := []serverside.Rule{perHour("ip", "", 10), at(serverside.AfterAuth, by(user, perHour("user", "", 2)))}
	h := must(t, serverside.Config{Rules: rules, Store: store, Style: ratelimit.Draft11}).Wrap(new(ok))
	codes(20, h, "GET", "/", "X-User", "ann")
	w := ask(h, "GET", "/", "X-User", "bob")
	assert.Contains(t, w.Header().Get("RateLimit"), `"ip";r=7;`, "10 less 2 of ann's and 1 of bob's")
}

func TestWebhooksAreCountedBySenderAndEndpoint(t *testing.T) {
	key := serverside.Join(user, serverside.KeyFunc(func(r *http.Request) string { return r.URL.Path }))
	h := must(t, serverside.Config{
		Rules: []serverside.Rule{at(serverside.AfterAuth, by(key, perHour("hook", "/hooks/", 1)))},
	}).Wrap(new(ok))
	for _, sender := range []string{"ann", "bob"} {
		for _, endpoint := range []string{"/hooks/a", "/hooks/b"} {
			assert.Equal(t, map[int]int{200: 1, 429: 1}, codes(2, h, "POST", endpoint, "X-User", sender))
		}
	}
}

func TestExemptRequestsNeverReachTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := atomic.Int64{}
		counting := store(func(_ context.Context, _ []quota.Decision, _ ...quota.Charge) ([]quota.Decision, error) {
			asked.Add(1)
			return nil, errDown
		})
		l := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1)), Store: counting, OnStoreError: serverside.FailClosed,
			Exempt: []string{"GET /health", "/live/{probe}"}, Audit: silent,
		})
		h := l.WrapEarly(l.Wrap(new(ok)))
		assert.Equal(t, map[int]int{200: 1000}, codes(1000, h, "GET", "/health"))
		assert.Equal(t, map[int]int{200: 10}, codes(10, h, "HEAD", "/live/db"))
		assert.Zero(t, asked.Load())
		assert.Empty(t, limitFields(ask(h, "GET", "/health").Header()))

		for _, path := range []string{
			"/healthz", "/health/deep", "/HEALTH", "//health", "/x/../health", "/health/../admin", "/%68ealth",
			"/health%2f..%2fadmin", "/live/a%2fb",
		} {
			r := httptest.NewRequest("GET", "http://example.com"+path, nil)
			assert.Equal(t, 503, serve(h, r).Code, path)
		}
		assert.Equal(t, 503, ask(h, "POST", "/health").Code)
	})
}

func TestExemptRequestStaysExemptInLaterStages(t *testing.T) {
	l := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Exempt: []string{"/probe/health"}, Audit: silent})
	h := l.WrapEarly(http.StripPrefix("/probe", l.Wrap(new(ok))))
	assert.Equal(t, map[int]int{200: 5}, codes(5, h, "GET", "/probe/health"))
}

func TestExemptPathMayEndWithASlash(t *testing.T) {
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Exempt: []string{"/health"}}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 5}, codes(5, h, "GET", "/health/"))
}

func TestExposeFields(t *testing.T) {
	for _, c := range []struct {
		cfg  serverside.Config
		want string
	}{
		{
			serverside.Config{},
			"Ratelimit, Ratelimit-Policy, X-Ratelimit-Limit, X-Ratelimit-Remaining, X-Ratelimit-Reset, Retry-After",
		},
		{
			serverside.Config{Style: ratelimit.Draft11, RetryAfterMS: true},
			"Ratelimit, Ratelimit-Policy, Retry-After, Retry-After-Ms",
		},
		{serverside.Config{Style: ratelimit.None}, "Retry-After"},
	} {
		c.cfg.Rules, c.cfg.ExposeFields = oneRule(quota.PerHour(1)), true
		l := must(t, c.cfg)
		h := l.WrapEarly(l.Wrap(new(ok)))
		for _, code := range []int{200, 429} {
			w := ask(h, "GET", "/")
			assert.Equal(t, code, w.Code)
			assert.Equal(t, []string{c.want}, w.Header()["Access-Control-Expose-Headers"])
		}
	}
}

func TestRetryAfterAsDateAndMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerMinute(5)), RetryAfterDate: true, RetryAfterMS: true,
		}).Wrap(new(ok))
		spend(t, h, 5)
		time.Sleep(300 * time.Millisecond)
		w := ask(h, "GET", "/")
		assert.Equal(t, []string{"Sat, 01 Jan 2000 00:00:12 GMT"}, w.Header()["Retry-After"])
		assert.Equal(t, []string{"11700"}, w.Header()["Retry-After-Ms"])
		wait, told := ratelimit.Wait(429, w.Header(), time.Now())
		assert.True(t, told)
		assert.GreaterOrEqual(t, wait, 11700*time.Millisecond)
		time.Sleep(wait)
		assert.Equal(t, 200, ask(h, "GET", "/").Code)
	})
}

func TestRetryAfterDateIsNeverTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{Rules: oneRule(quota.PerMinute(5)), RetryAfterDate: true}).Wrap(new(ok))
		spend(t, h, 5)
		time.Sleep(300 * time.Millisecond)
		date, err := http.ParseTime(ask(h, "GET", "/").Header().Get("Retry-After"))
		require.NoError(t, err)
		time.Sleep(time.Until(date))
		assert.Equal(t, 200, ask(h, "GET", "/").Code)
	})
}
