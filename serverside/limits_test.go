package serverside_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

// tierOf returns the tier of a user called tier-name.
func tierOf(r *http.Request) string { return strings.Split(user(r), "-")[0] }

func perMinuteAndHour(minute, hour int64) []quota.Policy {
	return []quota.Policy{quota.PerMinute(minute), quota.PerHour(hour)}
}

// tiered returns a rule with the tiers of three plans.
func tiered() []serverside.Rule {
	return []serverside.Rule{{Name: "api", Stage: serverside.AfterAuth, Key: user, Tier: tierOf, Tiers: []serverside.Tier{
		{Name: "free", Policies: perMinuteAndHour(10, 100)},
		{Name: "pro", Policies: perMinuteAndHour(100, 10_000)},
		{Name: "enterprise", Policies: perMinuteAndHour(1000, 100_000)},
	}}}
}

func TestUnknownTierIsTheLowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{Rules: tiered(), Audit: silent}).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 10, 429: 1}, codes(11, h, "GET", "/", "X-User", "gold-ann"), "unknown is free")
		assert.Equal(t, map[int]int{200: 10, 429: 1}, codes(11, h, "GET", "/", "X-User", "free-ann"))
		assert.Equal(t, map[int]int{200: 100, 429: 1}, codes(101, h, "GET", "/", "X-User", "pro-ann"))
		assert.Equal(t, map[int]int{200: 1000, 429: 1}, codes(1001, h, "GET", "/", "X-User", "enterprise-ann"))
		assert.Equal(t, `"api/1m";q=10;w=60;heed-algorithm=token-bucket, "api/1h";q=100;w=3600;heed-algorithm=token-bucket`,
			ask(h, "GET", "/", "X-User", "free-bob").Header().Get("RateLimit-Policy"))

		for i := range 300 { // one every 7 s is less than 10 a minute, but more than 100 an hour
			w := ask(h, "GET", "/", "X-User", "free-cid")
			if w.Code == 429 {
				assert.Greater(t, i, 100)
				assert.Equal(t, []string{"api/1h"}, problemOf(t, w).Violated)
				return
			}
			time.Sleep(7 * time.Second)
		}
		t.Fatal("the hour was never used up")
	})
}

func TestTiersMayHaveBursts(t *testing.T) {
	hourly := func(n, burst int64) []quota.Policy {
		return []quota.Policy{{Quota: n, Window: time.Hour, Burst: burst}}
	}
	rules := []serverside.Rule{{Name: "api", Stage: serverside.AfterAuth, Key: user, Tier: tierOf,
		Tiers: []serverside.Tier{
			{Name: "free", Policies: hourly(100, 10)}, {Name: "pro", Policies: hourly(5000, 100)},
			{Name: "enterprise", Policies: hourly(100_000, 2000)},
		}}}
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
		for tier, burst := range map[string]int{"free": 10, "pro": 100, "enterprise": 2000} {
			assert.Equal(t, map[int]int{200: burst, 429: 1}, codes(burst+1, h, "GET", "/", "X-User", tier+"-ann"))
		}
		time.Sleep(36 * time.Second)
		assert.Equal(t, map[int]int{200: 1, 429: 1}, codes(2, h, "GET", "/", "X-User", "free-ann"), "100 an hour refill")
	})
}

func TestChangeOfTierKeepsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tier, rules := "free", tiered()
		rules[0].Tier = func(*http.Request) string { return tier }
		h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
		codes(10, h, "GET", "/", "X-User", "ann")
		tier = "pro"
		w := ask(h, "GET", "/", "X-User", "ann")
		assert.Equal(t, `"api/1m";r=89;t=1, "api/1h";r=9989;t=1`, w.Header().Get("RateLimit"))
	})
}

func TestTierWithOnePolicyIsNamedAfterItsRule(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 500),
		{Name: "api", Stage: serverside.AfterAuth, Tier: tierOf, Tiers: []serverside.Tier{
			{
				Name: "free", Policies: []quota.Policy{quota.PerHour(1)},
			}, {Name: "pro", Policies: []quota.Policy{quota.PerHour(9)}}}}}
	h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
	w := ask(h, "GET", "/", "X-User", "pro")
	assert.Equal(t, `"api";q=9;w=3600;heed-algorithm=token-bucket, "ip";q=500;w=3600;heed-algorithm=token-bucket`,
		w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, "9", w.Header().Get("X-RateLimit-Limit"))
}

func limitedBy(limits serverside.Limits) []serverside.Rule {
	return []serverside.Rule{{Name: "key", Stage: serverside.AfterAuth, Key: user, Limits: limits,
		Policies: []quota.Policy{quota.PerMinute(4)}}}
}

func TestKeyMayHaveItsOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := serverside.LimitTable{"two": {PerMinute: 2}, "both": {PerMinute: 100, PerDay: 3}, "none": {}}
		h := must(t, serverside.Config{Rules: limitedBy(table), Audit: silent}).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 2, 429: 1}, codes(3, h, "GET", "/", "X-User", "two"))
		assert.Equal(t, []string{"key/1m"}, problemOf(t, ask(h, "GET", "/", "X-User", "two")).Violated)
		assert.Equal(t, map[int]int{200: 3, 429: 1}, codes(4, h, "GET", "/", "X-User", "both"))
		assert.Equal(t, []string{"key/24h"}, problemOf(t, ask(h, "GET", "/", "X-User", "both")).Violated)
		assert.Equal(t, map[int]int{200: 50}, codes(50, h, "GET", "/", "X-User", "none"), "zero is not enforced")
		assert.Equal(t, map[int]int{200: 4, 429: 1}, codes(5, h, "GET", "/", "X-User", "unknown"))
		assert.Equal(t, map[int]int{200: 4, 429: 1}, codes(5, h, "GET", "/"),
			"a client without a key is not looked up by address")
	})
}

func TestABlockedKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := serverside.LimitTable{"eve": {PerMinute: 100, Blocked: true}}
		var events eventLog
		limiter := must(t, serverside.Config{Rules: limitedBy(table), Audit: events.add})
		h := limiter.Wrap(new(ok))
		w := ask(h, "GET", "/", "X-User", "eve")
		assert.Equal(t, 403, w.Code)
		assert.Equal(t, http.Header{
			"Cache-Control": {"no-store"}, "X-Should-Retry": {"false"}, "Content-Type": {"application/problem+json"},
		}, w.Header())
		assert.Equal(t, `{"type":"`+serverside.ProblemBlocked+`","title":"Blocked","status":403,`+
			`"detail":"The server refuses all requests of this client."}`+"\n", w.Body.String())
		require.Len(t, events.events, 1)
		e := events.events[0]
		assert.Equal(t, serverside.Denied, e.Kind)
		assert.Equal(t, 403, e.Status)
		assert.Equal(t, "key", e.Rule)
		assert.Equal(t, map[int]int{200: 4, 429: 1}, codes(5, h, "GET", "/", "X-User", "ann"), "others have theirs")

		srv := testserver.NewLimited(t, limiter.Wrap)
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		req, _ := http.NewRequest("GET", srv.URL, nil)
		req.Header.Set("X-User", "eve")
		resp, err := client.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 403, resp.StatusCode)
		srv.Check(t)
		assert.Len(t, events.of(serverside.Denied), 3, "ann's, and two of eve's: the client asked once")
	})
}

func TestABlockedKeyDoesNotReachTheStore(t *testing.T) {
	for _, mode := range []serverside.FailureMode{serverside.FailOpen, serverside.FailLocal, serverside.FailClosed} {
		asked := 0
		s := store(func(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
			asked++
			return nil, errDown
		})
		h := must(t, serverside.Config{
			Rules: limitedBy(serverside.LimitTable{"eve": {Blocked: true}}), Store: s, OnStoreError: mode, Audit: silent,
		}).Wrap(new(ok))
		assert.Equal(t, 403, ask(h, "GET", "/", "X-User", "eve").Code)
		assert.Zero(t, asked)
	}
}

func TestADryRunOnlyReportsABlockedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := limitedBy(serverside.LimitTable{"eve": {Blocked: true}})
		rules[0].DryRun = true
		var events eventLog
		h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 9}, codes(9, h, "GET", "/", "X-User", "eve"))
		assert.Len(t, events.of(serverside.WouldDeny), 9)
	})
}

// A client that is blocked by its name must not use the server for nothing: the rules that are checked
// first, such as a limit of its address, keep their charges.
func TestABlockedKeyIsChargedByCheaperRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := append(limitedBy(serverside.LimitTable{"eve": {Blocked: true}}), perHour("ip", "", 3))
		h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
		assert.Equal(t, map[int]int{403: 3, 429: 2}, codes(5, h, "GET", "/", "X-User", "eve"))
	})
}

// A fault of the other limits does not let a blocked key in, and -1 blocks nobody: to some it means
// "unlimited".
func TestOnlyTheQuotaBlockedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			limits []quota.Policy
			err    error
			want   int
		}{
			"beside a fault": {[]quota.Policy{quota.PerDay(-1), {Quota: quota.Blocked}}, nil, 403},
			"with an error":  {[]quota.Policy{{Quota: quota.Blocked}}, errDown, 403},
			"-1":             {[]quota.Policy{quota.PerDay(-1)}, nil, 200},
		} {
			limits := provider(func(context.Context, string) ([]quota.Policy, error) { return c.limits, c.err })
			h := must(t, serverside.Config{Rules: limitedBy(limits), Audit: silent}).Wrap(new(ok))
			assert.Equal(t, c.want, ask(h, "GET", "/", "X-User", "eve").Code, name)
		}
		_, err := serverside.New(serverside.Config{Rules: oneRule(quota.Policy{Quota: quota.Blocked, Window: time.Hour})})
		assert.ErrorContains(t, err, "must be at least 1", "a rule blocks nobody")
	})
}

func TestLimitTableIgnoresFallbackAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Rules: limitedBy(serverside.LimitTable{"192.0.2.1": {PerDay: 1000}}), Audit: silent,
		}).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 4, 429: 1}, codes(5, h, "GET", "/"))
	})
}

// provider is a function as Limits.
type provider func(ctx context.Context, key string) ([]quota.Policy, error)

// noLimits are Limits that fail.
func noLimits(err error) provider {
	return func(context.Context, string) ([]quota.Policy, error) { return nil, err }
}

func (p provider) Limits(ctx context.Context, key string) ([]quota.Policy, error) { return p(ctx, key) }

func TestRulePoliciesApplyWhileLimitsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, limits := range map[string]provider{
			"error":    noLimits(errDown),
			"nonsense": func(context.Context, string) ([]quota.Policy, error) { return []quota.Policy{{Quota: -1}}, nil },
		} {
			var events eventLog
			h := must(t, serverside.Config{Rules: limitedBy(limits), Audit: events.add}).Wrap(new(ok))
			assert.Equal(t, map[int]int{200: 4, 429: 1}, codes(5, h, "GET", "/", "X-User", "ann"), name)
			failed := events.of(serverside.LimitsFailed)
			require.Len(t, failed, 5, name)
			assert.Error(t, failed[0].Err)
		}
	})
}

// A key whose limits nobody knows may be blocked, so its rule does what it does without its Store.
func TestUnknownLimitsFailByTheRulesMode(t *testing.T) {
	unknown := fmt.Errorf("%w: %w", quota.ErrUnknownLimits, errDown)
	late := fmt.Errorf("%w: %w", quota.ErrUnknownLimits, &remote.Error{Err: errDown, Late: true})
	own := map[int]int{200: 4, 429: 5}
	for name, c := range map[string]struct {
		err    error
		mode   serverside.FailureMode
		want   map[int]int
		others string // what the rule for the address has left
		failed int
	}{
		"open":   {unknown, serverside.FailOpen, map[int]int{200: 9}, `"ip";r=90;`, 9},
		"closed": {unknown, serverside.FailClosed, map[int]int{503: 9}, `"ip";r=99;`, 9},
		"local":  {unknown, serverside.FailLocal, own, `"ip";r=95;`, 0},
		"late":   {late, serverside.FailClosed, own, `"ip";r=95;`, 0},
		"known":  {errDown, serverside.FailClosed, own, `"ip";r=95;`, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var events eventLog
			rules := append(limitedBy(noLimits(c.err)), perHour("ip", "", 100))
			rules[0].OnStoreError = c.mode
			h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
			assert.Equal(t, c.want, codes(9, h, "GET", "/", "X-User", "ann"), name)
			assert.Len(t, events.of(serverside.LimitsFailed), 9, name)
			failures := events.of(serverside.StoreFailed)
			assert.Len(t, failures, c.failed, name)
			for _, e := range failures {
				assert.Equal(t, c.mode, e.Mode)
				assert.Equal(t, "key", e.Rule)
				assert.ErrorIs(t, e.Err, errDown)
			}
			assert.Contains(t, strings.Join(ask(h, "GET", "/").Header().Values("RateLimit"), ","), c.others, name)
		})
	}
}

func TestARequestWithUnknownLimitsIsUncounted(t *testing.T) {
	rules := limitedBy(noLimits(quota.ErrUnknownLimits))
	rules[0].OnStoreError = serverside.FailOpen
	var got serverside.Decision
	h := must(t, serverside.Config{Rules: rules, Audit: silent, InContext: true}).Wrap(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = serverside.FromContext(r.Context()) }))
	ask(h, "GET", "/", "X-User", "ann")
	want := serverside.Decision{Verdict: serverside.Uncounted, Rule: "key", Policy: "key", Degraded: true}
	assert.Equal(t, want, got)
}

func TestAClientThatDisconnectsDoesNotMakeItsLimitsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := provider(func(ctx context.Context, _ string) ([]quota.Policy, error) {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%w: %w", quota.ErrUnknownLimits, ctx.Err())
			}
			return []quota.Policy{quota.PerDay(1)}, nil
		})
		rules := limitedBy(slow)
		rules[0].OnStoreError = serverside.FailOpen
		h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(gone, "GET", "/", nil)
		r.Header.Set("X-User", "ann")
		serve(h, r)
		assert.Equal(t, 429, serve(h, r).Code)
	})
}

func TestLimitsReturnedWithAnErrorApply(t *testing.T) {
	last := provider(func(context.Context, string) ([]quota.Policy, error) {
		return []quota.Policy{quota.PerDay(1)}, errors.New("down")
	})
	var events eventLog
	h := must(t, serverside.Config{Rules: limitedBy(last), Audit: events.add}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 1, 429: 1}, codes(2, h, "GET", "/", "X-User", "ann"))
	assert.Len(t, events.of(serverside.LimitsFailed), 2)
}

func TestLimitsAreAskedWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := provider(func(ctx context.Context, _ string) ([]quota.Policy, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		h := promptly(t, must(t, serverside.Config{Rules: limitedBy(slow), Audit: silent}).Wrap(new(ok)))
		assert.Equal(t, 200, ask(h, "GET", "/", "X-User", "ann").Code)
	})
}

func TestManyDifferentLimitsUseBoundedMemory(t *testing.T) {
	limits := provider(func(_ context.Context, key string) ([]quota.Policy, error) {
		var n int64
		_, err := fmt.Sscan(key, &n)
		return []quota.Policy{quota.PerDay(n)}, err
	})
	h := must(t, serverside.Config{Rules: limitedBy(limits), Audit: silent}).Wrap(new(ok))
	for n := 1; n <= 5000; n++ {
		w := ask(h, "GET", "/", "X-User", fmt.Sprint(n))
		require.Equal(t, fmt.Sprint(n), w.Header().Get("X-RateLimit-Limit"))
	}
	assert.Equal(t, 429, ask(h, "GET", "/", "X-User", "1").Code)
}

func TestReadLimits(t *testing.T) {
	table, err := serverside.ReadLimits(
		strings.NewReader(`{"a": {"per_minute": 2, "per_day": null}, "b": {"per_second": 1, "per_hour": 5}, ` +
			`"c": {"blocked": true}}`),
	)
	require.NoError(t, err)
	want := serverside.LimitTable{"a": {PerMinute: 2}, "b": {PerSecond: 1, PerHour: 5}, "c": {Blocked: true}}
	assert.Equal(t, want, table)

	for _, wrong := range []string{
		``, `[]`, `{"a": {"per_minuet": 1}}`, `{"a": {"per_minute": -1}}`, `{"a": {"per_minute": 1.5}}`, `{} {}`,
		`{"a": {"blocked": 1}}`, `{"a": {"blocked": true, "per_minute": -1}}`,
	} {
		_, err := serverside.ReadLimits(strings.NewReader(wrong))
		assert.ErrorContains(t, err, "serverside: limits: ", wrong)
	}
	_, err = serverside.ReadLimits(strings.NewReader(`{"s3cr3t": {"per_minute": -1}}`))
	assert.NotContains(t, err.Error(), "s3cr3t")

	name := filepath.Join(t.TempDir(), "limits.json")
	require.NoError(t, os.WriteFile(name, []byte(`{"a": {"per_minute": 2}}`), 0o600))
	table, err = serverside.LoadLimits(name)
	require.NoError(t, err)
	assert.Len(t, table, 1)
	_, err = serverside.LoadLimits(name + "x")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// A client that paces itself must know how units come back, which the draft's parameters do not say.
func TestFieldsNameTheAlgorithm(t *testing.T) {
	for algorithm, want := range map[quota.Algorithm]string{
		quota.TokenBucket:   ";heed-algorithm=token-bucket",
		quota.FixedWindow:   ";heed-algorithm=fixed-window",
		quota.LeakyBucket:   ";heed-algorithm=leaky-bucket",
		quota.SlidingWindow: ";heed-algorithm=sliding-window",
		quota.SlidingLog:    ";heed-algorithm=sliding-log",
	} {
		p := quota.Policy{Quota: 10, Window: time.Minute, Algorithm: algorithm}
		cfg := serverside.Config{Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{p}}}}
		for style, policy := range map[ratelimit.Style]string{0: `"api";q=10;w=60`, ratelimit.Draft07: "10;w=60"} {
			cfg.Style = style
			assert.Equal(t, policy+want, ask(must(t, cfg).Wrap(new(ok)), "GET", "/").Header().Get("RateLimit-Policy"))
		}
	}
}
