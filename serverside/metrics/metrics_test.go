package metrics_test

import (
	"fmt"
	"math"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics"
	"github.com/heedhttp/heed/serverside/rulefile"
)

type series = map[string]float64

func TestDenialsAndLatenciesAreCountedByPattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := rule("login", "POST /login/{id}", quota.PerHour(1))
		s := open(t, rules(login, rule("ip", "GET /v1/{rest...}", quota.PerHour(3))))
		for i := range 5 {
			s.ask(1, "/v1/users/"+strconv.Itoa(i))
		}
		assert.Equal(t, series{`{endpoint="GET /v1/{rest...}",strategy="ip"}`: 2}, s.of("rate_limit_exceeded_total"))
		assert.Equal(t, series{`{endpoint="GET /v1/{rest...}"}`: 5}, s.of("rate_limit_check_duration_seconds_count"))
		assert.Equal(t, series{`{endpoint="GET /v1/{rest...}"}`: 0}, s.of("rate_limit_check_duration_seconds_sum"))
		assert.NotContains(t, s.text(), "users")
	})
}

func TestTheLatencyIncludesTheStore(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerHour(1))))
	const took = 150 * time.Millisecond
	s.metrics.Observe(serverside.Observation{
		Verdict: serverside.Admitted, Rule: "api", Pattern: "/", Took: took, Left: -1,
	})
	got := s.of("rate_limit_check_duration_seconds_bucket")
	assert.EqualValues(t, 0, got[`{endpoint="/",le="0.1"}`])
	assert.EqualValues(t, 1, got[`{endpoint="/",le="0.25"}`])
	assert.EqualValues(t, .15, s.of("rate_limit_check_duration_seconds_sum")[`{endpoint="/"}`])
}

func TestAMixOfRequestsIsCountedByVerdict(t *testing.T) {
	store := &switched{}
	byUser := rule("user", "/v1/", quota.PerHour(2))
	byUser.Key = user
	cfg := rules(byUser, rule("ip", "/v1/", quota.PerHour(10)))
	cfg.Store, cfg.OnStoreError = store, serverside.FailOpen
	s := open(t, cfg)
	for name, n := range map[string]int{"ann": 5, "bob": 3} {
		assert.Equal(t, map[int]int{200: 2, 429: n - 2}, s.ask(n, "/v1/x", "X-User", name))
	}
	for i := range 6 {
		s.ask(1, "/v1/x", "X-User", strconv.Itoa(i))
	}
	assert.Equal(t, map[int]int{429: 2}, s.ask(2, "/v1/x", "X-User", "new"), "the address has used up its 10")
	store.off.Store(true)
	assert.Equal(t, map[int]int{200: 4}, s.ask(4, "/v1/x"))

	assert.Equal(t, series{
		`{endpoint="/v1/",verdict="admitted"}`: 10, `{endpoint="/v1/",verdict="refused"}`: 6,
		`{endpoint="/v1/",verdict="uncounted"}`: 4, `{endpoint="/v1/",verdict="trusted"}`: 0,
	}, s.of("rate_limit_decisions_total"), "hits")
	assert.Equal(t, series{`{endpoint="/v1/"}`: 20}, s.of("rate_limit_check_duration_seconds_count"), "check latency")
	assert.Equal(t, series{
		`{endpoint="/v1/",mode="open"}`: 4, `{endpoint="/v1/",mode="closed"}`: 0, `{endpoint="/v1/",mode="local"}`: 0,
	}, s.of("rate_limit_store_failures_total"), "failures of the Store")
	assert.Equal(t, series{`{endpoint="/v1/"}`: 4}, s.of("rate_limit_fail_open_total"), "fail-open incidents")
	var ips, users []float64
	for labels, n := range s.of("rate_limit_top_denials") {
		assert.Regexp(t, `^{endpoint="/v1/",key="[0-9a-f]{32}",strategy="(ip|user)"}$`, labels)
		if strings.Contains(labels, `"ip"`) {
			ips = append(ips, n)
		} else {
			users = append(users, n)
		}
	}
	assert.Equal(t, []float64{2}, ips, "top limited addresses")
	assert.ElementsMatch(t, []float64{3, 1}, users, "top limited users")
}

func TestTheHitRatioIsDenialsByDecisions(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(94))))
	assert.Equal(t, map[int]int{200: 94, 429: 6}, s.ask(100, "/"))
	_, recorded := alerts(t)
	require.Equal(t, "sum(rate(rate_limit_exceeded_total[5m])) / sum(rate(rate_limit_decisions_total[5m]))",
		recorded["rate_limit:hit_ratio:rate5m"])
	ratio := sum(s.of("rate_limit_exceeded_total")) / sum(s.of("rate_limit_decisions_total"))
	assert.InDelta(t, .06, ratio, 1e-12)
}

func sum(s series) (sum float64) {
	for _, value := range s {
		sum += value
	}
	return sum
}

func TestARequestThatLeavesLessThanATenthIsCounted(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(100))))
	near := func() float64 { return s.of("rate_limit_near_limit_total")[`{endpoint="/",strategy="api"}`] }
	s.ask(90, "/")
	assert.Zero(t, near(), "10 are left")
	s.ask(1, "/")
	assert.EqualValues(t, 1, near(), "9 are left")
	s.ask(9, "/")
	assert.EqualValues(t, 1, near())
}

func TestTheTenMostDeniedKeysAreShown(t *testing.T) {
	s := open(t, rules(rule("ip", "/", quota.PerDay(1))))
	for i := range 200 {
		s.from("10.0.0."+strconv.Itoa(i), 2, "/")
	}
	for i := range 10 {
		s.from("10.0.1."+strconv.Itoa(i), 21+i, "/")
	}
	for i := range 200 {
		s.from("10.0.2."+strconv.Itoa(i), 2, "/")
	}
	var got []float64
	for _, n := range s.of("rate_limit_top_denials") {
		got = append(got, n)
	}
	assert.ElementsMatch(t, []float64{20, 21, 22, 23, 24, 25, 26, 27, 28, 29}, got)
}

func TestTheHeadroomIsTheLeastOfTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(rule("api", "/", quota.Policy{Quota: 100, Window: 24 * time.Hour, Algorithm: quota.FixedWindow})))
		headroom := func() series { return s.of("rate_limit_headroom_ratio") }
		assert.Empty(t, headroom(), "nothing was asked")
		s.from("10.0.0.1", 40, "/")
		s.from("10.0.0.2", 10, "/")
		left := func(v float64) series { return series{`{endpoint="/",strategy="api"}`: v} }
		assert.Equal(t, left(.6), headroom())
		time.Sleep(5 * time.Minute)
		assert.Equal(t, left(.6), headroom(), "in the window before")
		s.from("10.0.0.2", 10, "/")
		assert.Equal(t, left(.6), headroom())
		time.Sleep(5*time.Minute - time.Nanosecond)
		assert.Equal(t, left(.6), headroom())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, left(.8), headroom(), "is forgotten when another one is over")
		time.Sleep(5 * time.Minute)
		assert.Empty(t, headroom())
	})
}

func TestAKeyThatStopsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(rule("api", "/", quota.PerDay(1))))
		denied := func() float64 { return sum(s.of("rate_limit_top_denials")) }
		s.ask(3, "/")
		assert.EqualValues(t, 2, denied())
		time.Sleep(5 * time.Minute)
		assert.EqualValues(t, 2, denied())
		s.ask(1, "/")
		assert.EqualValues(t, 3, denied(), "of both windows")
		time.Sleep(5 * time.Minute)
		assert.EqualValues(t, 1, denied())
		time.Sleep(5 * time.Minute)
		assert.Zero(t, denied())
	})
}

func TestOneDecisionInTenIsSampled(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(100))), metrics.Options{SampleEvery: 10})
	s.ask(100, "/")
	got := s.of("rate_limit_remaining_ratio_bucket")
	assert.EqualValues(t, 10, got[`{endpoint="/",le="+Inf"}`], "of 100 decisions")
	assert.EqualValues(t, 1, got[`{endpoint="/",le="0.1"}`], "one in ten left less than a tenth")
	assert.EqualValues(t, 5, got[`{endpoint="/",le="0.5"}`])
	s.ask(1, "/")
	got = s.of("rate_limit_remaining_ratio_bucket")
	assert.EqualValues(t, 1, got[`{endpoint="/",le="0"}`], "a denial that leaves nothing")
}

func TestTheGaugeIsOneWhileTheStoreFails(t *testing.T) {
	store := &switched{}
	cfg := serverside.Config{Rules: []serverside.Rule{rule("api", "/", quota.PerHour(1000))}, Store: store}
	s := open(t, cfg)
	down := func() float64 { return s.of("rate_limit_redis_unavailable")[""] }
	s.ask(1, "/")
	assert.Zero(t, down())
	store.off.Store(true)
	s.ask(1, "/")
	assert.EqualValues(t, 1, down())
	store.off.Store(false)
	s.ask(1, "/")
	assert.Zero(t, down())

	store.off.Store(true)
	s.ask(1, "/")
	require.NoError(t, s.reconfigure(cfg))
	assert.Zero(t, down(), "no request came since")
	s.ask(1, "/")
	assert.EqualValues(t, 1, down())
}

func TestRequestsDuringAStoreFailureAreCounted(t *testing.T) {
	store := &switched{}
	store.off.Store(true)
	closed, local := rule("closed", "/closed", quota.PerHour(10)), rule("local", "/local", quota.PerHour(10))
	closed.OnStoreError, local.OnStoreError = serverside.FailClosed, serverside.FailLocal
	cfg := rules(rule("open", "/open", quota.PerHour(10)), closed, local)
	cfg.Store, cfg.OnStoreError = store, serverside.FailOpen
	s := open(t, cfg)
	assert.Equal(t, map[int]int{200: 100}, s.ask(100, "/open"))
	assert.Equal(t, map[int]int{503: 20}, s.ask(20, "/closed"))
	assert.Equal(t, map[int]int{200: 10, 429: 5}, s.ask(15, "/local"))
	assert.Equal(t, series{`{endpoint="/open"}`: 100, `{endpoint="/closed"}`: 0, `{endpoint="/local"}`: 0},
		s.of("rate_limit_fail_open_total"))
	failures := s.of("rate_limit_store_failures_total")
	assert.EqualValues(t, 100, failures[`{endpoint="/open",mode="open"}`])
	assert.EqualValues(t, 20, failures[`{endpoint="/closed",mode="closed"}`])
	assert.EqualValues(t, 15, failures[`{endpoint="/local",mode="local"}`])
	assert.EqualValues(t, 135, sum(failures))
}

func TestBypassesDryRunsAndHotKeysAreCounted(t *testing.T) {
	dry := rule("dry", "/", quota.PerDay(1))
	dry.DryRun = true
	ops := serverside.Allow{Name: "ops", Match: serverside.KeyIs(user, "ops"), Policies: []quota.Policy{quota.PerHour(5)}}
	s := open(t, serverside.Config{
		Rules: []serverside.Rule{dry, rule("ip", "/", quota.PerDay(10))}, Allow: []serverside.Allow{ops},
	})
	s.ask(111, "/")
	assert.Equal(t, map[int]int{200: 5, 429: 2}, s.ask(7, "/", "X-User", "ops"))
	assert.Equal(t, series{
		`{endpoint="/",strategy="ops"}`: 5, `{endpoint="/",strategy="ip"}`: 0, `{endpoint="/",strategy="dry"}`: 0,
	}, s.of("rate_limit_bypassed_total"))
	assert.EqualValues(t, 110, s.of("rate_limit_would_exceed_total")[`{endpoint="/",strategy="dry"}`])
	assert.Equal(t, series{
		`{endpoint="/",strategy="ops"}`: 0, `{endpoint="/",strategy="ip"}`: 1, `{endpoint="/",strategy="dry"}`: 0,
	}, s.of("rate_limit_hot_keys_total"))
	assert.EqualValues(t, 5, s.of("rate_limit_decisions_total")[`{endpoint="/",verdict="trusted"}`])
}

func TestConfigChangesAreCounted(t *testing.T) {
	cfg := rules(rule("api", "/", quota.PerHour(1)))
	s := open(t, cfg)
	require.NoError(t, s.reconfigure(cfg))
	require.Error(t, s.limiter.Reconfigure(serverside.Config{}))
	assert.Equal(t, series{`{result="applied"}`: 2, `{result="rejected"}`: 1}, s.of("rate_limit_config_changes_total"))
}

func TestRulesOfAFileAreCounted(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerHour(1))))
	env := rulefile.Env{Config: s.instrumented(serverside.Config{})}
	cfg, err := rulefile.Parse("rules.yaml", []byte("rules: [{name: file, pattern: /v1/, policies: 2/1h}]"), env)
	require.NoError(t, err)
	require.NoError(t, s.limiter.Reconfigure(cfg))
	assert.Equal(t, map[int]int{200: 2, 429: 3}, s.ask(5, "/v1/x"))
	assert.Equal(t, series{`{endpoint="/v1/",strategy="file"}`: 3}, s.of("rate_limit_exceeded_total"))
	assert.Equal(t, 5., sum(s.of("rate_limit_decisions_total")))
	assert.EqualValues(t, 2, s.of("rate_limit_config_changes_total")[`{result="applied"}`])
}

func TestConcurrentRequestsAreCountedExactly(t *testing.T) {
	s := open(t, rules(rule("ip", "/a/", quota.PerDay(50)), rule("all", "/b/", quota.PerDay(20))))
	const clients, each = 16, 100
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			peer := "10.0.0." + strconv.Itoa(i)
			s.from(peer, each, "/a/"+peer)
			s.from("10.0.0.1", each, "/b/")
			s.text()
		})
	}
	group.Wait()
	assert.Equal(t, series{
		`{endpoint="/a/",verdict="admitted"}`: clients * 50, `{endpoint="/a/",verdict="refused"}`: clients * 50,
		`{endpoint="/b/",verdict="admitted"}`: 20, `{endpoint="/b/",verdict="refused"}`: clients*each - 20,
		`{endpoint="/a/",verdict="uncounted"}`: 0, `{endpoint="/a/",verdict="trusted"}`: 0,
		`{endpoint="/b/",verdict="uncounted"}`: 0, `{endpoint="/b/",verdict="trusted"}`: 0,
	}, s.of("rate_limit_decisions_total"))
	assert.Equal(t, series{
		`{endpoint="/a/",strategy="ip"}`: clients * 50, `{endpoint="/b/",strategy="all"}`: clients*each - 20,
	}, s.of("rate_limit_exceeded_total"))
	assert.EqualValues(t, clients*each, s.of("rate_limit_remaining_ratio_count")[`{endpoint="/a/"}`])
	assert.EqualValues(t, clients, s.of("rate_limit_near_limit_total")[`{endpoint="/a/",strategy="ip"}`])
	assert.Equal(t, series{`{endpoint="/a/",strategy="ip"}`: 0, `{endpoint="/b/",strategy="all"}`: 0},
		s.of("rate_limit_headroom_ratio"))
	var counts []float64
	for labels, n := range s.of("rate_limit_top_denials") {
		if strings.Contains(labels, `"all"`) {
			assert.EqualValues(t, clients*each-20, n)
			continue
		}
		counts = append(counts, n)
	}
	assert.Equal(t, []float64{50, 50, 50, 50, 50, 50, 50, 50, 50, 50}, counts)
}

func TestKeysAndPathsAddNoSeries(t *testing.T) {
	byUser := rule("user", "/", quota.PerDay(1))
	byUser.Key = user
	s := open(t, rules(byUser, rule("ip", "/", quota.PerDay(1))))
	s.ask(40, "/")
	for i := range 20 {
		s.from("10.1.0."+strconv.Itoa(i), 3, "/", "X-User", "u"+strconv.Itoa(i))
	}
	before := len(s.scrape())
	for i := range 3000 {
		s.from(fmt.Sprintf("10.2.%d.%d", i/250, i%250), 2, "/path/"+strconv.Itoa(i), "X-User", "x"+strconv.Itoa(i))
	}
	assert.LessOrEqual(t, len(s.scrape()), before+10, "the other rule may show ten keys, too")
	assert.LessOrEqual(t, len(s.of("rate_limit_top_denials")), 20)
	assert.Greater(t, sum(s.of("rate_limit_exceeded_total")), 3000.)
}

func TestRulesBeyondAThousandAreOther(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(1))))
	for i := range 3000 {
		name := strconv.Itoa(i)
		s.metrics.Observe(serverside.Observation{Verdict: serverside.Admitted, Rule: name, Pattern: "/" + name, Left: 1})
	}
	got := s.of("rate_limit_decisions_total")
	assert.EqualValues(t, 3000, sum(got))
	assert.Len(t, got, 4*1001)
	assert.EqualValues(t, 2000, got[`{endpoint="other",verdict="admitted"}`])
}

func TestNoSecretIsALabel(t *testing.T) {
	store := &switched{}
	token := rule("token", "/v1/", quota.PerDay(1))
	token.Key, token.Stage = serverside.Header("Authorization"), serverside.AfterAuth
	s := open(t, serverside.Config{Rules: []serverside.Rule{token, rule("ip", "/v1/", quota.PerDay(1))}, Store: store})
	ask := func() {
		s.from("203.0.113.77", 200, "/v1/path-s3cr3t?token=query-s3cr3t", "Authorization", "Bearer header-s3cr3t",
			"Cookie", "sid=cookie-s3cr3t", "X-Forwarded-For", "203.0.113.78")
	}
	ask()
	store.off.Store(true)
	ask()
	text := s.text()
	assert.Contains(t, text, "rate_limit_top_denials{")
	for _, secret := range []string{"s3cr3t", "203.0.113", "10.0.0.7", "refused\n"} {
		assert.NotContains(t, text, secret)
	}
}

func TestASecondNewReturnsTheFirstMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	one, err := metrics.New(reg, metrics.Options{})
	require.NoError(t, err)
	two, err := metrics.New(reg, metrics.Options{SampleEvery: 16, TopKeys: 10})
	require.NoError(t, err)
	assert.Same(t, one, two)
	_, err = metrics.New(reg, metrics.Options{SampleEvery: 5})
	assert.EqualError(t, err, "metrics: registered before, with other options")
}

func TestALabelTellsLimitersApart(t *testing.T) {
	reg := prometheus.NewRegistry()
	of := func(limiter string) *metrics.Metrics {
		m, err := metrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"limiter": limiter}, reg), metrics.Options{})
		require.NoError(t, err)
		return m
	}
	inner := of("inner")
	assert.NotSame(t, inner, of("outer"))
	assert.Same(t, inner, of("inner"))
}

func TestATakenNameIsAnError(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "rate_limit_exceeded_total"}))
	_, err := metrics.New(reg, metrics.Options{})
	assert.ErrorContains(t, err, "metrics: register: ")
}

func TestANilRegistererRegistersNothing(t *testing.T) {
	m, err := metrics.New(nil, metrics.Options{})
	require.NoError(t, err)
	assert.NoError(t, prometheus.NewRegistry().Register(m))
}

func TestAllFaultsOfOptionsAreInTheError(t *testing.T) {
	_, err := metrics.New(nil, metrics.Options{Buckets: []float64{1, math.NaN(), 1, 1}, SampleEvery: -1, TopKeys: 101})
	assert.EqualError(t, err, `metrics: Buckets[1] must be more than the one before
metrics: Buckets[3] must be more than the one before
metrics: SampleEvery must not be negative
metrics: TopKeys must not be more than 100`)
}

func TestNegativeTopKeysShowNoKeys(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(1))), metrics.Options{TopKeys: -1})
	s.ask(3, "/")
	assert.Empty(t, s.of("rate_limit_top_denials"))
}

func TestInstrumentKeepsAuditAndObserve(t *testing.T) {
	var events, observations int
	s := open(t, serverside.Config{
		Rules:   []serverside.Rule{rule("api", "/", quota.PerDay(1))},
		Audit:   func(serverside.Event) { events++ },
		Observe: func(serverside.Observation) { observations++ },
	})
	s.ask(2, "/")
	assert.Equal(t, 3, events, "configured, near its limit, and denied")
	assert.Equal(t, 2, observations)
}

func TestWithoutAnAuditDenialsAreLogged(t *testing.T) {
	out := logged(t)
	m, err := metrics.New(nil, metrics.Options{})
	require.NoError(t, err)
	m.Audit(nil)(serverside.Event{Kind: serverside.Denied, Rule: "api"})
	assert.Contains(t, out.String(), "rate_limit.exceeded")
}

func TestInvalidUTF8InLabelsDoesNotPanic(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(1))))
	for _, bad := range []string{"\xff", "\xfe", "\uFFFD"} {
		s.metrics.Observe(serverside.Observation{Verdict: serverside.Admitted, Rule: bad, Pattern: "/" + bad, Left: .5})
		denied := serverside.Event{Kind: serverside.Denied, Rule: bad, Pattern: "/" + bad, Key: bad}
		s.metrics.Audit(func(serverside.Event) {})(denied)
	}
	assert.EqualValues(t, 3, s.of("rate_limit_exceeded_total")["{endpoint=\"/\uFFFD\",strategy=\"\uFFFD\"}"])
	assert.EqualValues(t, 3, sum(s.of("rate_limit_top_denials")))
	assert.Len(t, s.of("rate_limit_headroom_ratio"), 1)
}

func TestUnknownKindsAndVerdictsAreNotCounted(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(1))))
	audit := s.metrics.Audit(func(serverside.Event) {})
	audit(serverside.Event{Kind: -1})
	audit(serverside.Event{Kind: 1000})
	audit(serverside.Event{Kind: serverside.StoreFailed, Mode: 1000})
	s.metrics.Observe(serverside.Observation{Verdict: 1000, Left: math.NaN()})
	for _, name := range []string{
		"rate_limit_decisions_total", "rate_limit_exceeded_total",
		"rate_limit_store_failures_total", "rate_limit_remaining_ratio_count",
	} {
		assert.Zero(t, sum(s.of(name)), name)
	}
	assert.Empty(t, s.of("rate_limit_headroom_ratio"))
}

func TestNamesFollowTheAdviceOfPrometheus(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(1))))
	s.ask(3, "/")
	problems, err := testutil.GatherAndLint(s.reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestAnObservationAllocatesNothing(t *testing.T) {
	s := open(t, rules(rule("api", "/", quota.PerDay(1))))
	o := serverside.Observation{Verdict: serverside.Admitted, Rule: "api", Pattern: "", Took: time.Millisecond, Left: .5}
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.metrics.Observe(o) }))
	audit := s.metrics.Audit(func(serverside.Event) {})
	e := serverside.Event{Kind: serverside.Denied, Rule: "api", Pattern: "/", Key: "0123"}
	assert.Zero(t, testing.AllocsPerRun(100, func() { audit(e) }))
}

func BenchmarkObserve(b *testing.B) {
	s := open(b, rules(rule("api", "/", quota.PerDay(1))), metrics.Options{})
	o := serverside.Observation{Verdict: serverside.Admitted, Rule: "api", Pattern: "/", Took: time.Millisecond, Left: .5}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.metrics.Observe(o)
		}
	})
}

func TestForgottenKeysAreCounted(t *testing.T) {
	cfg := rules(rule("ip", "/", quota.PerHour(10)))
	cfg.Memory = &quota.Memory{MaxKeys: 64}
	s := open(t, cfg)
	assert.Zero(t, s.of("rate_limit_memory_forgotten_total")[""])
	for i := range 5000 {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255)
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.Positive(t, s.of("rate_limit_memory_forgotten_total")[""])
}
