package serverside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// records returns the records in a log.
func records(t *testing.T, out *bytes.Buffer) (all []map[string]any) {
	for line := range strings.Lines(out.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		all = append(all, record)
	}
	return all
}

func toBuffer(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	out := new(bytes.Buffer)
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})), out
}

func TestDenialIsLoggedOnceWithoutSecrets(t *testing.T) {
	logger, out := toBuffer(slog.LevelInfo)
	l := must(t, serverside.Config{Audit: serverside.LogAudit(logger), Rules: []serverside.Rule{{
		Name: "login", Pattern: "POST /login/{rest...}", Stage: serverside.AfterAuth,
		Key:      serverside.Header("Authorization"),
		Policies: []quota.Policy{quota.PerHour(1)}}}})
	h := l.Wrap(new(ok))
	for range 2 {
		r := httptest.NewRequest("POST", "/login/path-s3cr3t?token=query-s3cr3t", strings.NewReader("body-s3cr3t"))
		r.Header.Set("Authorization", "Bearer header-s3cr3t")
		r.Header.Set("Cookie", "sid=cookie-s3cr3t")
		serve(h, r)
	}
	got := records(t, out)
	require.Len(t, got, 2)
	assert.Equal(t, "rate_limit.configured", got[0]["msg"])
	assert.Equal(t, l.Hash(), got[0]["hash"])
	assert.Equal(t, "rate_limit.exceeded", got[1]["msg"])
	assert.Equal(t, "WARN", got[1]["level"])
	assert.Equal(t, "login", got[1]["rule"])
	assert.Equal(t, "POST /login/{rest...}", got[1]["endpoint"])
	assert.EqualValues(t, 1, got[1]["limit"])
	assert.EqualValues(t, 429, got[1]["status"])
	assert.Len(t, got[1]["key"], 32)
	assert.Equal(t, []any{"login"}, got[1]["policies"])
	assert.NotContains(t, out.String(), "s3cr3t")
	assert.NotContains(t, out.String(), "192.0.2.1")
}

func TestNilLoggerIsTheDefaultLogger(t *testing.T) {
	logger, out := toBuffer(slog.LevelWarn)
	before := slog.Default()
	slog.SetDefault(logger)
	defer slog.SetDefault(before)
	for _, audit := range []func(serverside.Event){nil, serverside.LogAudit(nil)} {
		out.Reset()
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Audit: audit}).Wrap(new(ok))
		codes(2, h, "GET", "/")
		assert.Contains(t, out.String(), "rate_limit.exceeded")
	}
}

func TestStoreFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mode, level := range map[serverside.FailureMode]string{
			serverside.FailOpen: "WARN", serverside.FailLocal: "WARN", serverside.FailClosed: "ERROR",
		} {
			logger, out := toBuffer(slog.LevelWarn)
			h := must(t, serverside.Config{
				Rules: oneRule(quota.PerHour(100)), Store: store(down), OnStoreError: mode,
				Audit: serverside.LogAudit(logger),
			}).Wrap(new(ok))
			ask(h, "GET", "/")
			got := records(t, out)
			require.Len(t, got, 1)
			assert.Equal(t, "rate_limit.store_unavailable", got[0]["msg"])
			assert.Equal(t, level, got[0]["level"])
			assert.Equal(t, mode.String(), got[0]["mode"])
			assert.Equal(t, "connection refused", got[0]["error"])
		}
	})
}

func TestLogIsLimitedPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := toBuffer(slog.LevelWarn)
		audit := serverside.LogAudit(logger)
		for range 1000 {
			audit(serverside.Event{Kind: serverside.Denied})
		}
		assert.Len(t, records(t, out), 100)
		time.Sleep(time.Second)
		audit(serverside.Event{Kind: serverside.Denied})
		got := records(t, out)
		require.Len(t, got, 101)
		assert.EqualValues(t, 900, got[100]["dropped"])
	})
}

// An outageLog is a log of failures of a Store.
type outageLog struct {
	out   *bytes.Buffer
	audit func(serverside.Event)
	port  int
}

func newOutageLog(level slog.Level) *outageLog {
	logger, out := toBuffer(level)
	return &outageLog{out: out, audit: serverside.LogAudit(logger)}
}

// fail logs n failures, one each second. Each is of another port.
func (l *outageLog) fail(n int, reason string) {
	for range n {
		l.port++
		l.audit(serverside.Event{Kind: serverside.StoreFailed, Err: fmt.Errorf("port %d: %s", l.port, reason)})
		time.Sleep(time.Second)
	}
}

func (l *outageLog) recover() { l.audit(serverside.Event{Kind: serverside.StoreRecovered}) }

// took returns the new lines.
func (l *outageLog) took(t *testing.T) (lines []string) {
	for _, r := range records(t, l.out) {
		line := strings.TrimPrefix(r["msg"].(string), "rate_limit.store_")
		if err, ok := r["error"]; ok {
			line += ", " + err.(string)
		}
		if n, ok := r["dropped"]; ok {
			line += fmt.Sprintf(", %v dropped", n)
		}
		lines = append(lines, line)
	}
	l.out.Reset()
	return lines
}

func TestAnOutageIsLoggedOnceForEachReasonAndEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newOutageLog(slog.LevelInfo)
		l.fail(3, "refused")
		l.fail(2, "no route")
		l.fail(20, "refused")
		l.recover()
		assert.Equal(t, []string{
			"unavailable, port 1: refused", "unavailable, port 4: no route, 2 dropped",
			"unavailable, port 11: refused, 6 dropped", "unavailable, port 21: refused, 9 dropped",
			"available, 4 dropped",
		}, l.took(t))
	})
}

func TestEachOutageIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warnings := newOutageLog(slog.LevelWarn)
		for range 2 {
			warnings.fail(3, "refused")
			warnings.recover()
			time.Sleep(time.Second)
		}
		want := []string{"unavailable, port 1: refused", "unavailable, port 4: refused, 2 dropped"}
		assert.Equal(t, want, warnings.took(t), "the recovery is not logged")
	})
}

// One of several servers is down: requests fail and succeed in turn.
func TestAPartialOutageIsLoggedEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newOutageLog(slog.LevelInfo)
		for range 15 {
			l.recover()
			l.fail(1, "refused")
		}
		l.recover()
		assert.Equal(t, []string{
			"unavailable, port 1: refused", "available", "unavailable, port 11: refused, 9 dropped", "available",
		}, l.took(t))
	})
}

func TestAReasonIsTheModeAndTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := toBuffer(slog.LevelInfo)
		audit := serverside.LogAudit(logger)
		for range 2 {
			for _, e := range []serverside.Event{
				{Kind: serverside.StoreFailed, Mode: serverside.FailOpen, Err: errDown},
				{Kind: serverside.StoreFailed, Mode: serverside.FailClosed, Err: errDown},
				{Kind: serverside.LimitsFailed, Err: errors.New("key 1")},
				{Kind: serverside.LimitsFailed, Err: errors.New("key 2")},
				{Kind: serverside.StoreLate, Err: errDown},
			} {
				audit(e)
			}
		}
		assert.Len(t, records(t, out), 5)
	})
}

func TestManyReasonsAreSixteenRecordsInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newOutageLog(slog.LevelInfo)
		fail := func(text string) { l.audit(serverside.Event{Kind: serverside.StoreFailed, Err: errors.New(text)}) }
		for i := range 1000 {
			fail(strings.Repeat("x", i%200))
			time.Sleep(9 * time.Millisecond)
		}
		assert.Len(t, l.took(t), 16)
		time.Sleep(10 * time.Second)
		fail("another")
		assert.Equal(t, []string{"unavailable, another, 984 dropped"}, l.took(t))
	})
}

func TestStoreRecoveryIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := false
		memory := new(quota.Memory)
		var events eventLog
		h := must(t,
			serverside.Config{Rules: oneRule(quota.PerHour(1)), Audit: events.add, OnStoreError: serverside.FailOpen,
				Store: store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
					if !up {
						return nil, errDown
					}
					return memory.Take(ctx, dst, charges...)
				})}).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 3}, codes(3, h, "GET", "/"), "it starts without its Store")
		up = true
		assert.Equal(t, map[int]int{200: 1, 429: 2}, codes(3, h, "GET", "/"), "and limits as soon as it has it")
		f, r, d := serverside.StoreFailed, serverside.StoreRecovered, serverside.Denied
		assert.Equal(t, []serverside.EventKind{f, f, f, r, d, d}, events.kinds())
	})
}

func TestRecoveryIsReportedAfterTheLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := false
		memory := new(quota.Memory)
		var events eventLog
		var h http.Handler
		h = must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(100)),
			Audit: func(e serverside.Event) {
				if e.Kind == serverside.StoreFailed { // a request finds the Store up before this failure is recorded
					up = true
					ask(h, "GET", "/")
				}
				events.add(e)
			},
			Store: store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
				if !up {
					return nil, errDown
				}
				return memory.Take(ctx, dst, charges...)
			}),
		}).Wrap(new(ok))
		codes(3, h, "GET", "/")
		assert.Equal(t, []serverside.EventKind{serverside.StoreFailed, serverside.StoreRecovered}, events.kinds())
	})
}

func TestHotKeyIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		h := must(t, serverside.Config{Rules: oneRule(quota.PerDay(1)), Audit: events.add}).Wrap(new(ok))
		hot := func() int { return len(events.of(serverside.HotKey)) }
		spend(t, h, 1)
		codes(100, h, "GET", "/")
		assert.Zero(t, hot(), "100 a minute are not too many")
		codes(1, h, "GET", "/")
		assert.Equal(t, 1, hot(), "101 are")
		codes(1000, h, "GET", "/")
		assert.Equal(t, 1, hot(), "reported once")
		for range 3 {
			time.Sleep(time.Minute)
			codes(200, h, "GET", "/")
		}
		assert.Equal(t, 1, hot(), "as long as it goes on")
		time.Sleep(2 * time.Minute)
		for range 200 { // 100 a minute at most
			ask(h, "GET", "/")
			time.Sleep(601 * time.Millisecond)
		}
		assert.Equal(t, 1, hot())
		time.Sleep(time.Minute)
		codes(101, h, "GET", "/")
		assert.Equal(t, 2, hot(), "and again after it was over")
		e := events.of(serverside.HotKey)[0]
		assert.Equal(t, "api", e.Rule)
		assert.Equal(t, events.of(serverside.Denied)[0].Key, e.Key)
	})
}

func TestHotKeyIsFoundAmongManyOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		rules := oneRule(quota.PerDay(1))
		rules[0].Key = user
		h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
		ask(h, "GET", "/", "X-User", "hot")
		others := 10_000 // ten times maxHotKeys
		if testenv.Long() {
			others *= 2
		}
		for i := range others {
			codes(2, h, "GET", "/", "X-User", fmt.Sprint(i))
			if i%(others/200) == 0 {
				ask(h, "GET", "/", "X-User", "hot")
			}
		}
		assert.Len(t, events.of(serverside.HotKey), 1)
	})
}

func TestNearLimitIsReportedOnce(t *testing.T) {
	var events eventLog
	h := must(t, serverside.Config{Rules: oneRule(quota.PerDay(100)), Audit: events.all}).Wrap(new(ok))
	near := func() int { return len(events.of(serverside.NearLimit)) }
	spend(t, h, 90)
	assert.Zero(t, near(), "10 are left")
	spend(t, h, 1)
	assert.Equal(t, 1, near(), "9 are left")
	spend(t, h, 9)
	assert.Equal(t, 1, near())
	e := events.of(serverside.NearLimit)[0]
	assert.Equal(t, []string{"api"}, e.Policies)
	assert.Equal(t, int64(100), e.Limit)
}

func TestRejectedConfigIsReportedToTheCurrentAudit(t *testing.T) {
	var events eventLog
	l := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Audit: events.all})
	assert.Error(t, l.Reconfigure(serverside.Config{}))
	assert.Equal(t, []serverside.EventKind{serverside.Configured, serverside.ConfigRejected}, events.kinds())
	assert.ErrorContains(t, events.events[1].Err, "Rules")
}

func TestEqualRulesHaveEqualHashes(t *testing.T) {
	one := func() serverside.Config {
		return serverside.Config{Rules: append(tiered(), perHour("ip", "/v1/", 5)), Exempt: []string{"/health"},
			Audit: silent}
	}
	want := must(t, one()).Hash()
	assert.Regexp(t, "^[0-9a-f]{16}$", want)
	assert.Equal(t, want, must(t, one()).Hash())
	reordered := one()
	slices.Reverse(reordered.Rules)
	assert.Equal(t, want, must(t, reordered).Hash(), "the specific rule is asked first all the same")
	for name, change := range map[string]func(*serverside.Config){
		"quota":   func(c *serverside.Config) { c.Rules[1].Policies[0].Quota++ },
		"tier":    func(c *serverside.Config) { c.Rules[0].Tiers[2].Policies[1].Window *= 2 },
		"name":    func(c *serverside.Config) { c.Rules[0].Tiers[2].Name = "best" },
		"pattern": func(c *serverside.Config) { c.Rules[1].Pattern = "/v2/" },
		"stage":   func(c *serverside.Config) { c.Rules[1].Stage = serverside.AfterAuth },
		"exempt":  func(c *serverside.Config) { c.Exempt = nil },
		"dry run": func(c *serverside.Config) { c.Rules[1].DryRun = true },
		"words":   func(c *serverside.Config) { c.Description = "key: ip" },
	} {
		cfg := one()
		change(&cfg)
		if l, err := serverside.New(cfg); assert.NoError(t, err, name) {
			assert.NotEqual(t, want, l.Hash(), name)
		}
	}
	assert.Empty(t, new(serverside.Limiter).Hash())
}

// withoutKey returns o without its key.
func withoutKey(o serverside.Observation) serverside.Observation {
	return serverside.Observation{Verdict: o.Verdict, Rule: o.Rule, Pattern: o.Pattern, Took: o.Took,
		Left: o.Left, Remaining: o.Remaining, Limit: o.Limit}
}

func TestObservationHasTheKeyOfItsEvent(t *testing.T) {
	var events eventLog
	var seen []serverside.Observation
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Audit: events.add,
		Observe: func(o serverside.Observation) { seen = append(seen, o) }}).Wrap(new(ok))
	codes(2, h, "GET", "/")
	require.Len(t, seen, 2)
	assert.Equal(t, events.of(serverside.Denied)[0].Key, seen[1].Key())
	assert.NotContains(t, seen[0].Key(), "192.0.2.1")
}

func TestConfiguredHasTheRules(t *testing.T) {
	var events eventLog
	cfg := serverside.Config{Rules: oneRule(quota.PerHour(1)), Audit: events.all}
	l := must(t, cfg)
	cfg.Rules[0].Name = "changed later"
	e := events.of(serverside.Configured)[0]
	require.Len(t, e.Rules, 1)
	assert.Equal(t, "api", e.Rules[0].Name)
	assert.Equal(t, l.Hash(), e.Hash)
	_, err := json.Marshal(e)
	assert.NoError(t, err, "an Audit may write JSON")
}

func TestEachDecisionIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []serverside.Observation
		var keys []string
		up := true
		memory := new(quota.Memory)
		cfg := serverside.Config{
			Rules: []serverside.Rule{perHour("api", "/v1/", 4), {Name: "slot", Pattern: "/slot", MaxInFlight: 1}},
			Allow: []serverside.Allow{
				{Name: "ops", Match: serverside.KeyIs(user, "ops"), Policies: []quota.Policy{quota.PerHour(2)}},
			},
			Audit: silent, OnStoreError: serverside.FailOpen,
			Observe: func(o serverside.Observation) {
				keys = append(keys, o.Key())
				seen = append(seen, withoutKey(o))
			},
			Store: store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
				time.Sleep(3 * time.Millisecond)
				if !up {
					return nil, errDown
				}
				return memory.Take(ctx, dst, charges...)
			}),
		}
		l := must(t, cfg)
		h := l.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slot" && user(r) == "" {
				ask(l.Wrap(new(ok)), "GET", "/slot", "X-User", "second")
			}
		}))
		codes(5, h, "GET", "/v1/x")
		ask(h, "GET", "/unlimited")
		ask(h, "GET", "/v1/x", "X-User", "ops")
		ask(h, "GET", "/slot")
		up = false
		ask(h, "GET", "/v1/x")
		const ms = time.Millisecond
		api := func(v serverside.Verdict, left float64) serverside.Observation {
			o := serverside.Observation{Verdict: v, Rule: "api", Pattern: "/v1/", Took: 3 * ms, Left: left}
			if left >= 0 {
				o.Remaining, o.Limit = int64(left*4), 4
			}
			return o
		}
		slot := serverside.Observation{Rule: "slot", Pattern: "/slot", Left: -1}
		admitted, refused := slot, slot
		admitted.Verdict, refused.Verdict = serverside.Admitted, serverside.Refused
		assert.Equal(t, []serverside.Observation{
			api(serverside.Admitted, .75), api(serverside.Admitted, .5), api(serverside.Admitted, .25),
			api(serverside.Admitted, 0), api(serverside.Refused, 0),
			{Verdict: serverside.Trusted, Rule: "ops", Took: 3 * ms, Left: .5, Remaining: 1, Limit: 2}, admitted,
			refused, api(serverside.Uncounted, -1),
		}, seen)
		assert.Len(t, keys[0], 32)
		assert.NotContains(t, keys, "")
		assert.Equal(t, keys[0], keys[4], "one key")
		assert.Empty(t, serverside.Observation{}.Key())
	})
}

// Rules that are checked first have charges, but it is not they that deny.
func TestADenialWithoutAQuotaIsObservedOfItsRule(t *testing.T) {
	for name, c := range map[string]struct {
		limits   serverside.Limits
		inFlight int64
		code     int
	}{
		"blocked":   {serverside.LimitTable{"eve": {Blocked: true}}, 0, 403},
		"in flight": {serverside.LimitTable{}, 1, 429},
		"outage":    {serverside.LimitTable{"eve": {PerHour: 9}}, 0, 503},
		"unknown":   {noLimits(quota.ErrUnknownLimits), 0, 503},
	} {
		synctest.Test(t, func(t *testing.T) {
			var denied []serverside.Observation
			var keys []string
			memory := new(quota.Memory)
			h := must(t, serverside.Config{
				Rules: []serverside.Rule{perHour("ip", "", 100), {
					Name: "late", Key: user, Limits: c.limits, MaxInFlight: c.inFlight,
					Policies: []quota.Policy{quota.PerHour(9)}, OnStoreError: serverside.FailClosed,
				}},
				Gate: gate(func(context.Context, string, int64, int64) (*quota.Hold, quota.Decision, error) {
					return nil, quota.Decision{}, nil // no place is free
				}),
				Store: store(func(ctx context.Context, dst []quota.Decision, all ...quota.Charge) ([]quota.Decision, error) {
					if strings.HasPrefix(all[0].Limit.Name(), "late/") {
						return nil, errDown
					}
					return memory.Take(ctx, dst, all...)
				}),
				Audit:   func(e serverside.Event) { keys = append(keys, e.Key) },
				Observe: func(o serverside.Observation) { denied = append(denied, o) },
			}).Wrap(new(ok))
			keys = nil // that of Configured
			assert.Equal(t, c.code, ask(h, "GET", "/", "X-User", "eve").Code, name)
			require.Len(t, denied, 1, name)
			assert.Equal(t, []string{denied[0].Key()}, slices.Compact(keys), name)
			assert.Equal(t, serverside.Refused, denied[0].Verdict, name)
			assert.Equal(t, "late", denied[0].Rule, name)
			assert.EqualValues(t, -1, denied[0].Left, name)
		})
	}
}

func TestObservationOfAPenaltyHasNothingLeft(t *testing.T) {
	var seen []serverside.Observation
	rule := serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(1)},
		Penalty: &serverside.Penalty{After: 1, Within: time.Hour, First: time.Hour}}
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent,
		Observe: func(o serverside.Observation) { seen = append(seen, o) }}).Wrap(new(ok))
	codes(3, h, "GET", "/")
	require.Len(t, seen, 3)
	assert.Equal(t, serverside.Refused, seen[2].Verdict)
	assert.EqualValues(t, -1, seen[2].Left)
}

func TestKindsAndVerdictsHaveNames(t *testing.T) {
	for kind := serverside.Denied; kind <= serverside.ConfigRejected; kind++ {
		assert.NotContains(t, kind.String(), "EventKind")
	}
	assert.Equal(t, "EventKind(0)", serverside.EventKind(0).String())
	for v := serverside.Admitted; v <= serverside.Trusted; v++ {
		assert.NotContains(t, v.String(), "Verdict")
	}
	assert.Equal(t, "Verdict(9)", serverside.Verdict(9).String())
}
