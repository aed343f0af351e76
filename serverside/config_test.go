package serverside_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// faults returns the fields of the ConfigErrors in err.
func faults(t *testing.T, err error) (fields []string) {
	t.Helper()
	require.Error(t, err)
	for _, fault := range err.(interface{ Unwrap() []error }).Unwrap() {
		e := fault.(*serverside.ConfigError)
		assert.NotEmpty(t, e.Reason)
		assert.Equal(t, "serverside: "+e.Field+": "+e.Reason, e.Error())
		fields = append(fields, e.Field)
	}
	return fields
}

func TestNewReturnsAllFaults(t *testing.T) {
	per := []quota.Policy{quota.PerMinute(1)}
	_, err := serverside.New(serverside.Config{
		StoreTimeout: -1,
		OnStoreError: 7,
		Style:        1 << 20,
		Rules: []serverside.Rule{
			{Name: "a", Pattern: "GET", Policies: per},
			{Name: "a", Pattern: "/a//b", Policies: per},
			{Name: "no policies"},
			{Name: "café", Policies: per},
			{
				Name: "policies", OnStoreError: -1,
				Policies: []quota.Policy{{}, {Quota: 5, Window: time.Second, Burst: -1}, {Quota: 1 << 62, Window: 7}},
			},
			{Name: "twice", Policies: []quota.Policy{quota.PerMinute(1), quota.PerMinute(2)}},
			{Pattern: "/{x}/{x}", Policies: per},
		},
	})
	assert.ElementsMatch(t, []string{
		"StoreTimeout", "OnStoreError", "Style",
		"Rules[0].Pattern", "Rules[1].Name", "Rules[1].Pattern", "Rules[2].Policies", "Rules[3].Name",
		"Rules[4].OnStoreError", "Rules[4].Policies[0].Quota", "Rules[4].Policies[0].Window", "Rules[4].Policies[1].Burst",
		"Rules[4].Policies[2].Quota", "Rules[5].Policies", "Rules[6].Pattern",
	}, faults(t, err))
}

func TestZeroConfigLacksRules(t *testing.T) {
	l, err := serverside.New(serverside.Config{})
	assert.Nil(t, l)
	assert.Equal(t, []string{"Rules"}, faults(t, err))
}

func TestZeroLimiterAdmitsUntilConfigured(t *testing.T) {
	var l serverside.Limiter
	h := l.Wrap(new(ok))
	assert.Equal(t, 200, ask(h, "GET", "/").Code)
	require.NoError(t, l.Reconfigure(serverside.Config{Rules: oneRule(quota.PerHour(1))}))
	assert.Equal(t, 200, ask(h, "GET", "/").Code)
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestNilHandlerIsTheDefaultServeMux(t *testing.T) {
	assert.Equal(t, 404, ask(limit(t, quota.PerHour(1)).Wrap(nil), "GET", "/").Code)
}

func TestNilMemoryMeansNoStore(t *testing.T) {
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Store: (*quota.Memory)(nil)}).Wrap(new(ok))
	spend(t, h, 1)
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestLimitersWithOneMemoryCountTogether(t *testing.T) {
	cfg := serverside.Config{Rules: oneRule(quota.PerHour(2)), Store: new(quota.Memory)}
	one, two := must(t, cfg).Wrap(new(ok)), must(t, cfg).Wrap(new(ok))
	spend(t, one, 1)
	spend(t, two, 1)
	assert.Equal(t, 429, ask(one, "GET", "/").Code)
	assert.Equal(t, 429, ask(two, "GET", "/").Code)
}

func TestLimitersWithoutAMemoryCountApart(t *testing.T) {
	cfg := serverside.Config{Rules: oneRule(quota.PerHour(1))}
	spend(t, must(t, cfg).Wrap(new(ok)), 1)
	spend(t, must(t, cfg).Wrap(new(ok)), 1)
}

func TestClientHasABucketUnderEachRule(t *testing.T) {
	h := must(t, serverside.Config{
		Rules: []serverside.Rule{perHour("a", "/a", 2), perHour("b", "/b", 3)}, Audit: silent,
	}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 2, 429: 1}, codes(3, h, "GET", "/a"))
	assert.Equal(t, map[int]int{200: 3, 429: 1}, codes(4, h, "GET", "/b"))
}

func TestPolicyNamesInTheFields(t *testing.T) {
	minute, hour := quota.PerMinute(100), quota.PerHour(1000)
	named := func(name string) quota.Policy { return quota.Policy{Name: name, Quota: 100, Window: 90 * time.Minute} }
	for _, c := range []struct {
		name  string
		rules []serverside.Rule
		want  []string
	}{
		{"a rule alone", []serverside.Rule{{Name: "api", Policies: []quota.Policy{minute}}}, []string{"api"}},
		{"no name", []serverside.Rule{{Policies: []quota.Policy{minute}}}, []string{"default"}},
		{"a pattern", []serverside.Rule{{Pattern: "GET /", Policies: []quota.Policy{minute}}}, []string{"GET /"}},
		{"windows", []serverside.Rule{{Name: "api", Policies: []quota.Policy{minute, hour}}}, []string{"api/1m", "api/1h"}},
		{"its own", []serverside.Rule{{Name: "api", Policies: []quota.Policy{named("burst"), hour}}},
			[]string{"burst", "api/1h"}},
		{"one name in two rules",
			[]serverside.Rule{
				{Name: "a", Policies: []quota.Policy{named("x")}}, {Name: "b", Policies: []quota.Policy{named("x")}},
			},
			[]string{"a/x", "b/x"}},
		{"a policy called as a rule",
			[]serverside.Rule{
				{Name: "a", Policies: []quota.Policy{minute}}, {Name: "b", Policies: []quota.Policy{named("a")}},
			},
			[]string{"a/1m", "b/a"}},
		{"a policy called as rule and policy",
			[]serverside.Rule{
				{Name: "a", Policies: []quota.Policy{minute, hour}}, {Name: "b", Policies: []quota.Policy{named("a/1m")}},
			},
			[]string{"a/1m", "a/1h", "b/a/1m"}},
	} {
		w := ask(must(t, serverside.Config{Rules: c.rules}).Wrap(new(ok)), "GET", "/")
		var names []string
		for _, member := range strings.Split(w.Header().Get("RateLimit-Policy"), ", ") {
			names = append(names, strings.Split(member, `"`)[1])
		}
		assert.Equal(t, c.want, names, c.name)
	}
}

func TestStyles(t *testing.T) {
	for style, want := range map[ratelimit.Style]int{
		0: 5, ratelimit.Draft11: 2, ratelimit.XRateLimit: 3, ratelimit.Draft06: 3, ratelimit.Draft07: 2, ratelimit.None: 0,
		ratelimit.Draft11 | ratelimit.XRateLimitDelta: 5, ratelimit.XRateLimit | ratelimit.Draft06: 6,
		ratelimit.None | ratelimit.Draft11: 0,
	} {
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Style: style}).Wrap(new(ok))
		assert.Len(t, limitFields(ask(h, "GET", "/").Header()), want)
		w := ask(h, "GET", "/")
		assert.Equal(t, 429, w.Code)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
	}
}

func TestReconfigureKeepsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []serverside.Rule{
			{Name: "kept", Policies: []quota.Policy{quota.PerMinute(60)}},
			{Name: "dropped", Pattern: "/x", Policies: []quota.Policy{quota.PerMinute(60)}},
		}
		l := must(t, serverside.Config{Rules: rules})
		h := l.Wrap(new(ok))
		spend(t, h, 40)

		rules[0].Policies = []quota.Policy{quota.PerMinute(600), quota.PerHour(10_000)}
		require.NoError(t, l.Reconfigure(serverside.Config{Rules: rules[:1]}))
		w := ask(h, "GET", "/")
		assert.Equal(t, `"kept/1m";r=559;t=1, "kept/1h";r=9999;t=1`, w.Header().Get("RateLimit"))
	})
}

func TestInvalidConfigChangesNothing(t *testing.T) {
	l := limit(t, quota.PerHour(2))
	h := l.Wrap(new(ok))
	spend(t, h, 1)
	assert.Equal(t, []string{"Rules[0].Policies"}, faults(t, l.Reconfigure(serverside.Config{Rules: oneRule()})))
	spend(t, h, 1)
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestLaterChangesToAConfigHaveNoEffect(t *testing.T) {
	rules := oneRule(quota.PerHour(1))
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	rules[0].Policies[0] = quota.PerHour(1000)
	rules[0].Pattern = "/elsewhere"
	spend(t, h, 1)
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestReconfigureUnderLoadCountsExactly(t *testing.T) {
	cfg := func(rules ...string) (cfg serverside.Config) {
		for _, name := range rules {
			cfg.Rules = append(cfg.Rules, serverside.Rule{Name: name, Policies: []quota.Policy{quota.PerDay(100)}})
		}
		return cfg
	}
	l := must(t, cfg("a"))
	h := l.Wrap(http.HandlerFunc(bare))
	var group sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 8 {
		group.Go(func() {
			for range 200 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request("GET", "http://example.com/", "192.0.2.1:1"))
				if w.Code == 204 {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
			}
		})
	}
	group.Go(func() {
		for range 100 {
			assert.NoError(t, l.Reconfigure(cfg("b", "a")))
			assert.NoError(t, l.Reconfigure(cfg("a")))
		}
	})
	group.Wait()
	assert.Equal(t, 100, admitted)
}
