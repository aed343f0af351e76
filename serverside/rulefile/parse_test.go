package rulefile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// env returns an Env with a function of each kind.
func env() rulefile.Env {
	return rulefile.Env{
		Config: serverside.Config{Audit: func(serverside.Event) {}},
		Keys: map[string]serverside.Key{
			"user": serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") }),
		},
		Costs: map[string]func(*http.Request) int64{
			"weight": func(r *http.Request) int64 { return int64(len(r.URL.Path)) },
		},
		Tiers: map[string]func(*http.Request) string{
			"plan": func(r *http.Request) string { return r.Header.Get("X-Plan") },
		},
		Limits: map[string]serverside.Limits{"contracts": serverside.LimitTable{"ann": {PerMinute: 1}}},
		Matches: map[string]func(*http.Request) bool{
			"ours": func(r *http.Request) bool { return r.Header.Get("X-Ours") != "" },
		},
		Responses: map[string]func(serverside.Response) bool{
			"teapot": func(r serverside.Response) bool { return r.Status == 418 },
		},
		Bodies: map[string]func(http.ResponseWriter, *http.Request, serverside.Denial){
			"none": func(http.ResponseWriter, *http.Request, serverside.Denial) {}},
	}
}

func parsed(t testing.TB, name, text string) serverside.Config {
	t.Helper()
	cfg, err := rulefile.Parse(name, []byte(text), env())
	require.NoError(t, err)
	return cfg
}

func limiter(t testing.TB, cfg serverside.Config) *serverside.Limiter {
	t.Helper()
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	return l
}

// status sends a request from 192.0.2.1, with header fields given in pairs.
func status(h http.Handler, method, target string, fields ...string) int {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

var fine = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

const whole = `
trusted_proxies: [192.0.2.0/24, loopback]
proxy_fields: [X-Real-IP]
ipv6_bits: 56
key: join(ip, user)
exempt: GET /health
on_store_error: local
closed_status: 429
store_timeout: 20ms
style: [draft-07, x-ratelimit-delta]
fields_on_denial_only: true
expose_fields: true
retry_after_date: true
retry_after_ms: true
body: envelope
allow:
  - {name: probe, peers: 198.51.100.7, policies: 9/1s}
  - {name: ops, match: ours, key: peer, policies: [{quota: 1_000, window: 1h}]}
  - {name: partner, key: "header:X-Key", keys: [abc], policies: 5/1m}
rules:
  - name: login
    pattern: /login
    method: POST
    policies: 5/15m log
    charge_if: unauthorized
    penalty: {strike: unauthorized, pardon: succeeded, after: 3, within: 10m, first: 1m, max: 1h, forget: 7d}
  - pattern: GET /v1/{id}
    stage: after-auth
    tier: plan
    tiers: [{name: free, policies: 10/1m}, {name: pro, policies: [100/1m burst 20, 1000/1d]}]
    limits: contracts
    refund_if: teapot
    cost: weight
    key: named( v1 , first(user, cookie:sid) )
    on_store_error: open
  - name: slots
    if: repeated
    max_in_flight: 7
    dry_run: true
  - name: everybody
    stage: overload
    status: 503
    cost: 3
    policies:
      - name: flood
        quota: 600
        window: 1m
        burst: 30
        algorithm: leaky-bucket
      - {quota: 5000, calendar: week, location: Europe/Berlin}
`

func TestFileSetsEveryConfigField(t *testing.T) {
	cfg := parsed(t, "rules.yaml", whole)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	assert.Equal(t, []string{"GET /health"}, cfg.Exempt)
	assert.Equal(t, serverside.FailLocal, cfg.OnStoreError)
	assert.Equal(t, 20*time.Millisecond, cfg.StoreTimeout)
	assert.Equal(t, 429, cfg.ClosedStatus)
	assert.Equal(t, ratelimit.Draft07|ratelimit.XRateLimitDelta, cfg.Style)
	assert.True(t, cfg.FieldsOnDenialOnly && cfg.ExposeFields && cfg.RetryAfterDate && cfg.RetryAfterMS)
	assert.NotNil(t, cfg.Deny)
	assert.NotNil(t, cfg.Audit, "which is Env's")

	require.Len(t, cfg.Rules, 4)
	login, v1, slots, everybody := cfg.Rules[0], cfg.Rules[1], cfg.Rules[2], cfg.Rules[3]
	assert.Equal(t, "POST /login", login.Pattern)
	assert.Equal(t, []quota.Policy{{Quota: 5, Window: 15 * time.Minute, Algorithm: quota.SlidingLog}}, login.Policies)
	assert.EqualValues(t, 0, login.Settle(serverside.Response{Status: 200, Cost: 1}))
	assert.EqualValues(t, 1, login.Settle(serverside.Response{Status: 401, Cost: 1}))
	assert.True(t, login.Penalty.Strike(serverside.Response{Status: 403}))
	assert.True(t, login.Penalty.Pardon(serverside.Response{Status: 200}))
	login.Penalty.Strike, login.Penalty.Pardon = nil, nil
	assert.Equal(t,
		&serverside.Penalty{
			After: 3, Within: 10 * time.Minute, First: time.Minute, Max: time.Hour, Forget: 7 * 24 * time.Hour,
		}, login.Penalty)

	assert.Equal(t, "GET /v1/{id}", v1.Pattern)
	assert.Equal(t, serverside.AfterAuth, v1.Stage)
	assert.Equal(t, serverside.FailOpen, v1.OnStoreError, "although the file's is local")
	assert.Equal(t, []serverside.Tier{
		{Name: "free", Policies: []quota.Policy{quota.PerMinute(10)}},
		{Name: "pro", Policies: []quota.Policy{{Quota: 100, Window: time.Minute, Burst: 20}, quota.PerDay(1000)}},
	}, v1.Tiers)
	assert.Equal(t, "pro", v1.Tier(&http.Request{Header: http.Header{"X-Plan": {"pro"}}}))
	assert.NotNil(t, v1.Limits)
	assert.EqualValues(t, 0, v1.Settle(serverside.Response{Status: 418, Cost: 1}))
	assert.EqualValues(t, 5, v1.Cost(httptest.NewRequest("GET", "/v1/a", nil)))

	assert.EqualValues(t, 7, slots.MaxInFlight)
	assert.True(t, slots.DryRun)
	assert.True(t, slots.If(&http.Request{Header: http.Header{ratelimit.AttemptField: {"2"}}}))
	assert.False(t, slots.If(&http.Request{Header: http.Header{ratelimit.AttemptField: {"1"}}}))
	assert.Equal(t, serverside.Overload, everybody.Stage)
	assert.Equal(t, 503, everybody.Status)
	assert.EqualValues(t, 3, everybody.Cost(nil))
	assert.Equal(t, []quota.Policy{
		{Name: "flood", Quota: 600, Window: time.Minute, Burst: 30, Algorithm: quota.LeakyBucket},
		{Quota: 5000, Calendar: quota.Week, Algorithm: quota.FixedWindow, Location: berlin},
	}, everybody.Policies)
}

func TestKeyExpressions(t *testing.T) {
	cfg := parsed(t, "rules.yaml", whole)
	request := func(fields ...string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil) // from 192.0.2.1
		for i := 0; i < len(fields); i += 2 {
			r.Header.Add(fields[i], fields[i+1])
		}
		return r
	}
	assert.Equal(t, "9:192.0.2.13:ann", cfg.Key.Of(request("X-User", "ann")))
	assert.Equal(t, "16:2001:db8:0:100::3:ann", cfg.Key.Of(request("X-User", "ann", "X-Real-IP", "2001:db8:0:1ff::1")),
		"the /56 named by a trusted proxy")
	assert.Equal(t, "v1:0:ann", cfg.Rules[1].Key.Of(request("X-User", "ann", "Cookie", "sid=1")))
	assert.Equal(t, "v1:1:"+serverside.HashKey("Cookie sid", "1"), cfg.Rules[1].Key.Of(request("Cookie", "sid=1")))

	assert.True(t, cfg.Allow[0].Match(&http.Request{RemoteAddr: "198.51.100.7:1", Header: http.Header{}}))
	assert.False(t, cfg.Allow[0].Match(&http.Request{RemoteAddr: "198.51.100.8:1", Header: http.Header{}}))
	assert.True(t, cfg.Allow[1].Match(request("X-Ours", "1")))
	assert.Equal(t, "192.0.2.1", cfg.Allow[1].Key.Of(request("X-Real-IP", "203.0.113.1")),
		"the peer's fields are ignored")
	keys := parsed(t, "r.yaml",
		`{allow: [{name: a, key: 'header:x-key', keys: `+serverside.HashKey("X-Key",
			"secret")+`, policies: 1/s}], rules: [{policies: 1/s}]}`)
	assert.True(t, keys.Allow[0].Match(request("X-Key", "secret")))
	assert.False(t, keys.Allow[0].Match(request("X-Key", "guess")))
}

func TestForwardingIsIgnoredWithoutTrustedProxies(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.1")
	assert.Equal(t, "192.0.2.1", parsed(t, "r.yaml", "rules: [{policies: 1/s}]").Key.Of(r))
	assert.Equal(t, "203.0.113.1",
		parsed(t, "r.yaml", "{rules: [{policies: 1/s}], trusted_proxies: 192.0.2.1}").Key.Of(r),
		"wherever the field stands")
}

func TestEqualFilesHaveEqualHashes(t *testing.T) {
	same := map[string]string{
		"a.yaml": "trusted_proxies: [10.0.0.0/8, 127.0.0.1]\nrules:\n" +
			"- {name: a, pattern: POST /x, policies: 60/1m}\n" +
			"- {name: b, key: 'header:x-id', stage: after-auth, policies: 1000/month}\n",
		"b.yaml": "# another order, the long form, defaults written out\nrules:\n- name: b\n" +
			"  policies: [{calendar: month, quota: 1_000, burst: 1000, location: UTC}]\n" +
			"  key: header:X-ID\n  stage: after-auth\n  cost: 1\n" +
			"- name: a\n  method: POST\n  pattern: /x\n  status: 429\n  dry_run: false\n" +
			"  policies: {quota: 60, window: 60s, algorithm: token-bucket}\n" +
			"trusted_proxies: [127.0.0.1/32, 10.0.0.0/8, 10.0.0.0/8]\nipv6_bits: 64\n" +
			"proxy_fields: x-forwarded-for\nkey: ip\non_store_error: local\n",
		"c.JSON": "{\"rules\": [\t{\"name\": \"a\", \"pattern\": \"POST \\/x\", \"policies\": " +
			"[\"60/minute\"]},\n" +
			"{\"name\": \"b\", \"key\": \"header:X-Id\", \"stage\": \"after-auth\", \"policies\": " +
			"\"1000/month UTC\"}], \"trusted_proxies\": [\"10.0.0.0/8\", \"127.0.0.1\"]}",
		"d.yaml": "x: &x", // replaced
	}
	same["d.yaml"] = "rules:\n- &a {name: a, pattern: POST /x, policies: &p 60/1m}\n" +
		"- {name: b, key: 'header:x-id', stage: after-auth, policies: 1000/month}\n" +
		"trusted_proxies: &t [10.0.0.0/8, 127.0.0.1]\n"
	want := limiter(t, parsed(t, "a.yaml", same["a.yaml"])).Hash()
	for name, text := range same {
		assert.Equal(t, want, limiter(t, parsed(t, name, text)).Hash(), name)
	}
	for _, change := range []string{"60/1m>61/1m", "POST>GET", "header:x-id>header:x-ie",
		"header:x-id>first(header:x-id)", "10.0.0.0/8>10.0.0.0/9", "month>week",
		"name: a>cost: 2, name: a", "name: a>name: c", "name: a>status: 429, dry_run: true, name: a",
		"name: a>charge_if: teapot, name: a", "rules>ipv6_bits: 63\nrules", "name: a>if: repeated, name: a",
		"name: a>if: ours, name: a",
		"name: a>penalty: {after: 1, within: 1m, first: 1m}, name: a", "rules>exempt: /x\nrules", "rules>key: peer\nrules",
		"rules>allow: [{name: c, match: ours, policies: 1/s}]\nrules"} {
		from, to, _ := strings.Cut(change, ">")
		text := strings.Replace(same["a.yaml"], from, to, 1)
		require.NotEqual(t, same["a.yaml"], text, change)
		assert.NotEqual(t, want, limiter(t, parsed(t, "a.yaml", text)).Hash(), change)
	}
}

func TestEachFaultHasItsPosition(t *testing.T) {
	for _, c := range []struct {
		name, text string
		faults     []string
	}{
		{"r.yaml", "", []string{"r.yaml:1:1: the file is empty"}},
		{"r.yaml", "# nothing\n", []string{"r.yaml:1:1: the file is empty"}},
		{"r.yaml", "rules: [", []string{"r.yaml:1:1: is not YAML: did not find expected node content"}},
		{"r.yaml", "exempt: /x\nrules:\n- policies: 1/s\n  name: x\n   cost: 1\n",
			[]string{"r.yaml:5:4: is not YAML: mapping values are not allowed in this context"}},
		{"r.yaml", "exempt: [/x,\n  /y\nrules:\n- policies: 1/s\n",
			[]string{"r.yaml:1:1: is not YAML: did not find expected ',' or ']'"}},
		{"r.yaml", "rules:\n- policies: 1/s\n  name: 'x\n\n  cost: 1\n",
			[]string{"r.yaml:3:3: is not YAML: found unexpected end of stream"}},
		{"r.yaml", "rules:\n- {policies: 1/s}\n---\n{}\n", []string{"r.yaml:3:1: the file must not have a second document"}},
		{"r.yaml", "- a\n", []string{"r.yaml:1:1: is a list: must be an object"}},
		{"r.yaml", "{}", []string{"r.yaml:1:1: rules: must not be empty"}},
		{"r.yaml", "rules: []", []string{"r.yaml:1:8: rules: must not be empty"}},
		{"r.yaml", "rules: {}", []string{"r.yaml:1:8: rules: is an object: must be a list"}},
		{"r.yaml", "rules:\n", []string{"r.yaml:1:7: rules: is empty: set a value or leave it out"}},
		{"r.yaml", "rules:\n  - policies: 60/1m\n    policies: 6/1m\n",
			[]string{"r.yaml:3:5: rules[0].policies: is set twice: see line 2"}},
		{"r.yaml", "rules: [{policies: 60/1m, maxInFlight: 3, zone: 1, ? [a] : b}]", []string{
			"r.yaml:1:27: rules[0]: unknown key \"maxInFlight\": did you mean \"max_in_flight\"?",
			"r.yaml:1:43: rules[0]: unknown key \"zone\"",
			"r.yaml:1:54: rules[0]: has a list as a key",
		}},
		{"r.yaml", "rules:\n- policies:\n  - {quota: 0, window: 1m}\n  - 5/0s\n  - 60/1m burst ten\n  - 60\n" +
			"  - sixty/1m\n  - 60/1m brust 5\n  - 60/month Europe/Berlyn\n  - 60/1m burst\n" +
			"  - 99999999999999999999/1s\n  - 5/1m burst 6 log\n", []string{
			"r.yaml:3:13: rules[0].policies[0].quota: is 0: must be at least 1",
			"r.yaml:4:5: rules[0].policies[1].window: is 0s: must be more than 0",
			`r.yaml:5:5: rules[0].policies[2]: is "ten": must be a whole number`,
			`r.yaml:6:5: rules[0].policies[3]: is "60": write a quota, a slash and a window, as in "60/1m"`,
			`r.yaml:7:5: rules[0].policies[4]: is "sixty": must be a whole number`,
			`r.yaml:8:5: rules[0].policies[5]: "brust" is not one of fixed, leaky, log, sliding, token, ` +
				`burst: did you mean "burst"?`,
			`r.yaml:9:5: rules[0].policies[6]: is "Europe/Berlyn": must be a time zone such as Europe/Berlin`,
			`r.yaml:10:5: rules[0].policies[7]: "burst" needs a number after it`,
			`r.yaml:11:5: rules[0].policies[8]: is "99999999999999999999": too large`,
			"r.yaml:12:5: rules[0].policies[9].burst: is 6: must equal quota with sliding-log",
		}},
		{"r.yaml", "key: usr\nrules:\n- {policies: 1/s, key: 'header:'}\n" +
			"- {name: b, policies: 1/s, key: 'jion(ip)'}\n- {name: c, policies: 1/s, key: 'join(ip'}\n" +
			"- {name: d, policies: 1/s, key: 'ip) x'}\n- {name: e, policies: 1/s, key: 'query:x'}\n" +
			"- {name: f, policies: 1/s, key: 'join(ip,)'}\n" +
			"- {name: g, policies: 1/s, key: 'named(a b, ip)'}\n" +
			"- {name: h, policies: 1/s, key: named(ip)}\n" +
			"- {name: i, policies: 1/s, key: 'named(a, ip, ip)'}\n" +
			"- {name: j, policies: 1/s, key: 'named(a, join(usr))'}\n", []string{
			`r.yaml:1:6: key: "usr" is not a key: must be one of ip, peer, user: did you mean "user"?`,
			`r.yaml:3:24: rules[0].key: has "", which is not the name of a header`,
			`r.yaml:4:33: rules[1].key: has an unknown function "jion": must be join, first or named`,
			`r.yaml:5:33: rules[2].key: lacks a closing bracket`,
			`r.yaml:6:33: rules[3].key: has ") x" after the key`,
			`r.yaml:7:33: rules[4].key: has an unknown key "query:x": write header:NAME, cookie:NAME or form:NAME`,
			`r.yaml:8:33: rules[5].key: lacks a key`,
			`r.yaml:9:33: rules[6].key: needs a name and a key in named, as in named(user, header:X-User)`,
			`r.yaml:10:33: rules[7].key: needs a name and a key in named, as in named(user, header:X-User)`,
			`r.yaml:11:33: rules[8].key: needs a name and a key in named, as in named(user, header:X-User)`,
			`r.yaml:12:33: rules[9].key: "usr" is not a key: must be one of ip, peer, user: did you mean "user"?`,
		}},
		{"r.yaml", "rules:\n- {pattern: /v1/, key: 'header:X-Id', policies: 1/s}\n", []string{
			"r.yaml:2:24: rules[0].key: is sent by the client, which can change it with every request: " +
				"add a rule by ip for the same requests, or check the key first and set stage to after-auth"}},
		{"r.yaml", "rules:\n- {name: a, pattern: '{', policies: 1/s}\n" +
			"- {name: a, policies: 1/s, stage: after_auth, status: 503, key: 'header:X-Id'}\n" +
			"- {name: c, status: 503, policies: 1/s}\n- {method: post, policies: 1/s}\n" +
			"- {name: e, method: GET, pattern: GET /, policies: 1/s}", []string{
			`r.yaml:2:22: rules[0].pattern: parsing "{": at offset 0: host/path missing /`,
			`r.yaml:3:10: rules[1].name: "a" is already the name of rules[0]`,
			`r.yaml:3:35: rules[1].stage: is "after_auth": must be one of after-auth, before-auth, ` +
				`overload: did you mean "after-auth"?`,
			`r.yaml:4:21: rules[2].status: is 503: only rules of the overload stage may deny with 503`,
			`r.yaml:5:12: rules[3].method: is "post": must be a method such as POST`,
			`r.yaml:6:21: rules[4].method: must not be set: the pattern "GET /" has a method already`,
		}},
		{"r.yaml", "ipv6_bits: 0\nexempt: [/]\ntrusted_proxies: [10.0.0.1/8, fe80::1%eth0, 10.0.0]\n" +
			"proxy_fields: 'X Y'\nstore_timeout: soon\nstyle: [draft-12]\nbody: html\n" +
			"expose_fields: yes\nallow:\n- {name: a, policies: 1/s}\n" +
			"- {policies: 1/s, peers: '::1', match: ours}\n- {name: c, keys: [x], policies: 1/s}\n" +
			"- {name: d, match: theirs, policies: 1/s}\n" +
			"rules: [{policies: 1/s, cost: 0, max_in_flight: -1, tier: plan, limits: none}]\n", []string{
			"r.yaml:1:12: ipv6_bits: is 0: must be 1 to 128",
			`r.yaml:2:10: exempt[0]: "/" exempts every path`,
			`r.yaml:3:19: trusted_proxies[0]: is "10.0.0.1/8", which has bits after its prefix: write 10.0.0.0/8`,
			`r.yaml:3:31: trusted_proxies[1]: is "fe80::1%eth0": ` +
				`must be an address or a network such as 10.0.0.0/8, 2001:db8::/32 or loopback`,
			`r.yaml:3:45: trusted_proxies[2]: is "10.0.0": ` +
				`must be an address or a network such as 10.0.0.0/8, 2001:db8::/32 or loopback`,
			`r.yaml:4:15: proxy_fields[0]: is "X Y": must be the name of a header field`,
			`r.yaml:5:16: store_timeout: is "soon": must be a duration such as 500ms, 90s, 1m, 1h30m or 7d`,
			`r.yaml:6:9: style[0]: is "draft-12": must be one of draft-06, draft-07, draft-11, none, ` +
				`x-ratelimit, x-ratelimit-delta: did you mean "draft-11"?`,
			`r.yaml:7:7: body: "html" is not a body: must be one of coded-problem, detail, envelope, ` +
				`flat, limit, problem, timed-problem, none`,
			`r.yaml:8:16: expose_fields: is "yes": must be true or false`,
			`r.yaml:10:3: allow[0]: must have exactly one of peers, keys and match, but has 0`,
			`r.yaml:11:3: allow[1]: must have exactly one of peers, keys and match, but has 2`,
			`r.yaml:12:19: allow[2].keys: must be set with key, which says what the keys are`,
			`r.yaml:13:20: allow[3].match: "theirs" is not a match function: must be one of ours`,
			`r.yaml:14:9: rules[0].tiers: must not be empty`,
			`r.yaml:14:31: rules[0].cost: is 0: must be at least 1; list free requests in exempt`,
			`r.yaml:14:49: rules[0].max_in_flight: is -1: must not be negative`,
			`r.yaml:14:73: rules[0].limits: "none" is not a limits table: must be one of contracts`,
		}},
		{"r.json", "", []string{"r.json:1:1: is not JSON: unexpected end of JSON input"}},
		{"r.json", "{\"rules\": [\n  {\"policies\": \"1/s\", \"polices\": 1}\n]}",
			[]string{"r.json:2:23: rules[0]: unknown key \"polices\": did you mean \"policies\"?"}},
		{"r.json", "{\"rules\": [\n  {\"policies\": \"1/s\"},\n]}",
			[]string{"r.json:3:1: is not JSON: invalid character ']' looking for beginning of value"}},
		{"r.json", "{\"rules\": [\n  {\"policies\": \"1/s\"",
			[]string{"r.json:2:20: is not JSON: unexpected end of JSON input"}},
		{"r.json", "{\"rules\": [{\"policies\": \"1/s\"}]}\n\"ü\" 1",
			[]string{`r.json:2:1: is not JSON: invalid character '"' after top-level value`}},
		{"r.json", "{\"rules\": [{\"policies\": \"1/s\", \"dry_run\": \"true\", \"name\": null}]}", []string{
			`r.json:1:43: rules[0].dry_run: is "true": must be true or false`,
			"r.json:1:59: rules[0].name: is empty: set a value or leave it out"}},
	} {
		_, err := rulefile.Parse(c.name, []byte(c.text), env())
		var told []string
		for _, fault := range rulefile.Faults(err) {
			told = append(told, fault.Error())
		}
		assert.Equal(t, c.faults, told, c.text)
	}
}

func TestAllFaultsAreReportedUpToABound(t *testing.T) {
	for rules, faults := range map[int]int{70: 70, 700: 100} {
		text := "rules:\n"
		for i := range rules {
			text += fmt.Sprintf("- {name: r%d, policies: x}\n", i)
		}
		_, err := rulefile.Parse("r.yaml", []byte(text), rulefile.Env{})
		assert.Len(t, rulefile.Faults(err), faults)
	}
	assert.Nil(t, rulefile.Faults(errors.New("other")))
	assert.Nil(t, rulefile.Faults(nil))
}

func TestHugeFilesAreRefused(t *testing.T) {
	bomb := "a0: &a0 [60/1m,60/1m,60/1m,60/1m,60/1m,60/1m,60/1m,60/1m,60/1m]\n"
	for i := range 11 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	policies := "rules:\n- {name: a, policies: &p [" + strings.TrimSuffix(strings.Repeat("1/s, ", 900), ", ") + "]}\n"
	for _, c := range []struct{ text, want string }{
		{bomb + "rules: [{policies: *a11}]", "rules[0].policies[0]: is a list: must be an object"},
		{bomb + "rules: *a11", "rules[0]: is a list: must be an object"},
		{policies + strings.Repeat("- {policies: *p}\n", 900), "the file has more than 50000 values"},
		{"rules: &a\n- name: x\n  policies: *a\n", `rules[0].policies[0]: unknown key "policies"`},
		{"rules: &a [*a]\n", "rules[0]: is a list: must be an object"},
		{"a: &a [*a]\n", `unknown key "a"`},
		{strings.Repeat("[", 200_000), "is not YAML: exceeded max depth of 10000"},
		{strings.Repeat("- ", 200_000), "is not YAML: exceeded max depth of 10000"},
		{strings.Repeat("[", 40) + strings.Repeat("]", 40), "is a list: must be an object"},
		{"#" + strings.Repeat("x", 1<<20), "the file is 1048577 bytes long: the limit is 1048576"},
		{"rules:\n" + strings.Repeat("- {policies: 1/s}\n", 1001), "has 1001 elements: the limit is 1000"},
		{"rules: [{policies: 1/s, name: " + strings.Repeat("x", 1001) + "}]", "has 1001 bytes: the limit is 1000"},
		{"rules: [{policies: 1/s, key: '" + strings.Repeat("join(", 50) + "'}]", "is nested too deeply"},
		{"rules: [{policies: 1/s, key: '" + strings.Repeat("named(a,", 50) + "'}]", "is nested too deeply"},
	} {
		started := time.Now()
		_, err := rulefile.Parse("r.yaml", []byte(c.text), rulefile.Env{})
		assert.ErrorContains(t, err, c.want)
		assert.Less(t, time.Since(started), time.Minute)
	}
	started := time.Now()
	unknown := strings.Repeat(`"trusted_proxie_":0,`, 45_000)
	_, err := rulefile.Parse("r.json", []byte("{"+strings.TrimSuffix(unknown, ",")+"}"), rulefile.Env{})
	assert.Len(t, rulefile.Faults(err), 100)
	assert.Less(t, time.Since(started), time.Minute)
	for depth, want := range map[int]string{
		32: "must be an object", 33: "is nested too deeply", 500_000: "exceeded max depth",
	} {
		_, err := rulefile.Parse("r.json", []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)), rulefile.Env{})
		assert.ErrorContains(t, err, want)
	}
}

func TestJSONIsReadLikeYAML(t *testing.T) {
	text := "{\r\n\t\"rules\" :\t[{\"name\":\"a\\\\ud83d\\/\\u0041\",\"pattern\":\"/\\u00e9\\\"x\"," +
		"\"cost\":2e0,\"dry_run\":true,\"policies\":[\n" +
		"\"1\\/s\"]}]}"
	_, err := rulefile.Parse("r.json", []byte(text), env())
	assert.EqualError(t, err, `r.json:2:70: rules[0].cost: "2e0" is not a cost function: must be one of weight`)
	l, err := rulefile.List("r.JSON", []byte(strings.Replace(text, "2e0", "2", 1)), env())
	require.NoError(t, err)
	assert.Equal(t, `a\ud83d/A`, l.Rules[0].Rule.Name)
	assert.Equal(t, "/é\"x", l.Rules[0].Rule.Pattern)
	assert.Equal(t, []string{"cost 2"}, l.Rules[0].Functions)

	_, err = rulefile.Parse("r.json",
		[]byte("{\"rules\": [{\"policies\": \"\\ud83d\\ude00\\ud83d\",\n\"if\": \"\\ud83d\"}]}"), env())
	assert.EqualError(t, err,
		"r.json:1:25: rules[0].policies[0]: is \"😀\uFFFD\": write a quota, a slash and a window, as in \"60/1m\"\n"+
			"r.json:2:7: rules[0].if: \"\uFFFD\" is not a match function: must be one of repeated, ours")
}

func TestUnknownFieldSuggestsTheNearest(t *testing.T) {
	for key, hint := range map[string]string{
		"trusted_proxy": `: did you mean "trusted_proxies"?`, "trustedProxies": `: did you mean "trusted_proxies"?`,
		"Rule": `: did you mean "rules"?`, "exmpt": `: did you mean "exempt"?`,
		"retry-after-ms": `: did you mean "retry_after_ms"?`,
		"allowlist":      "", "limits": "", "": "", "<<": "", strings.Repeat("x", 100): "",
	} {
		_, err := rulefile.Parse("r.yaml", []byte("? '"+key+"'\n: 1\nrules: [{policies: 1/s}]\n"), env())
		if len(key) > 40 {
			key = key[:40] + "…"
		}
		assert.EqualError(t, err, fmt.Sprintf("r.yaml:1:3: unknown key %q%s", key, hint))
	}
	_, err := rulefile.Parse("r.yaml", []byte("rules: [{policy: 1/s}]\n"), env())
	assert.EqualError(t, err, `r.yaml:1:10: rules[0]: unknown key "policy": did you mean "policies"?`,
		"the missing policies are not a second fault")
}

func TestFaultsUseTheWordsOfTheFile(t *testing.T) {
	text := `
store_timeout: -1s
closed_status: 500
allow:
- {peers: 10.0.0.1, policies: 1/s}
- {name: b, match: ours}
- {name: r1, match: ours, policies: 1/s}
exempt: [/X]
rules:
- {name: r1, policies: [1/s, 2/s]}
- {name: r2, policies: [5/1m burst 6 log, 5/1m burst 6 sliding, 5/1m burst 6 fixed]}
- name: r3
  policies: [{quota: 1, calendar: day, algorithm: leaky-bucket}, {quota: 1, window: 1m, location: UTC},
    {quota: 9999999999, window: 1d, algorithm: sliding-log}]
- {name: r4}
- {name: r5, tier: plan}
- {name: r6, tiers: [{name: a, policies: 1/s}, {name: a}]}
- {name: r7, tiers: [{name: a, policies: 1/s}], tier: plan, policies: 1/s}
- {name: r8, limits: contracts}
- {name: r9, policies: 1/s, penalty: {after: 1, within: 1s}}
- {name: r10, policies: 1/s, penalty: {after: 1, within: 1s, first: 2s, max: 1s}}
- {name: r11, policies: 1/s, penalty: {within: 1s, first: 2s}}
- {name: r12, policies: {name: penalty, quota: 1, window: 1s}, penalty: {after: 1, within: 1s, first: 2s}}
- {name: r13, policies: 1/s, status: 418}
- {name: r14, policies: 1/s, status: 503}
- {name: r15, policies: 1/s, pattern: '{}'}
- {name: r16, policies: 1/s, key: 'header:X', pattern: /other}
- {name: "Rules[1] Tiers", policies: 1/s}
- {name: "Rules[1] Tiers", policies: 1/s}
- {name: r17, max_in_flight: -1}
`
	_, err := rulefile.Parse("r.yaml", []byte(strings.Replace(text, "name: \"R", "if: ours, name: \"R", 1)), env())
	faults := rulefile.Faults(err)
	assert.Greater(t, len(faults), 25, "%v", err)
	quoted := regexp.MustCompile(`"[^"]*"`)
	for _, f := range faults {
		assert.NotRegexp(t, `\b[A-Z]\w*`, quoted.ReplaceAllString(f.Field+": "+f.Reason, `""`))
	}
	assert.ErrorContains(t, err, `rules[17].name: "Rules[1] Tiers" is already the name of rules[16]`)
	assert.ErrorContains(t, err, `r.yaml:15:3: rules[3].policies: must not be empty`)
	_, err = rulefile.Parse("r.yaml", []byte("rules: [{stage: overload, policies: 1/s}]"), env())
	assert.EqualError(t, err,
		"r.yaml:1:8: rules: has only overload rules, so one client could use everything: add a rule for each client")
}

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := parsed(t, "r.yaml", `
rules:
- {name: address, policies: 100/1m}
- {name: login, pattern: POST /login, login: "form:user"}
- {name: own, pattern: POST /own, login: "form:user", policies: 3/1h log, on_store_error: closed}
`)
		want := serverside.Logins("login", "POST /login", serverside.FormValue("user"))
		assert.Equal(t, want.Policies, cfg.Rules[1].Policies)
		assert.Equal(t, []quota.Policy{{Quota: 3, Window: time.Hour, Algorithm: quota.SlidingLog}}, cfg.Rules[2].Policies)
		assert.Equal(t, serverside.FailClosed, cfg.Rules[2].OnStoreError)
		h := limiter(t, cfg).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}))
		var codes []int
		for range 6 {
			r := httptest.NewRequest("POST", "/login", strings.NewReader("user=ann"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			codes = append(codes, w.Code)
		}
		assert.Equal(t, []int{401, 401, 401, 401, 401, 429}, codes)

		l, err := rulefile.List("r.yaml",
			[]byte("rules: [{name: a, policies: 1/s}, {name: b, pattern: POST /b, login: 'form:user'}]"), env())
		require.NoError(t, err)
		assert.Equal(t, "form:user", l.Rules[1].Key)
		assert.Equal(t, []string{"login form:user"}, l.Rules[1].Functions)
		_, err = rulefile.Parse("r.yaml",
			[]byte(
				"rules: [{name: a, policies: 1/s}, {name: b, pattern: POST /b, login: 'form:user', charge_if: unauthorized}]",
			), env())
		assert.EqualError(t, err, "r.yaml:1:94: rules[1].charge_if: must not be set with login")
	})
}

func TestBodyMayBeAProblemWithItsOwnType(t *testing.T) {
	for name, want := range map[string]func(http.ResponseWriter, *http.Request, serverside.Denial){
		"timed-problem": serverside.TimedProblem("https://example.com/slow"),
		"coded-problem": serverside.CodedProblem("https://example.com/slow"),
	} {
		text := "{body: " + name + " https://example.com/slow, rules: [{policies: 1/s}]}"
		l, err := rulefile.List("r.yaml", []byte(text), env())
		require.NoError(t, err)
		assert.Equal(t, [2]string{name, "https://example.com/slow"}, [2]string{l.Body, l.ProblemType})
		d, got, expected := serverside.Denial{Status: 429, Quota: 1, Window: time.Second}, httptest.NewRecorder(),
			httptest.NewRecorder()
		l.Config.Deny(got, nil, d)
		want(expected, nil, d)
		assert.Equal(t, expected.Body.String(), got.Body.String())
		for _, wrong := range []string{"", " slow", " /slow", " %"} {
			_, err := rulefile.Parse("r.yaml", []byte("{body: '"+name+wrong+"', rules: [{policies: 1/s}]}"), env())
			assert.EqualError(t, err,
				"r.yaml:1:8: body: is "+name+" without a URI: write "+name+" https://api.example.com/problems/rate-limited")
		}
	}
	l, err := rulefile.List("r.yaml", []byte("{body: flat, rules: [{policies: 1/s}]}"), env())
	require.NoError(t, err)
	assert.Equal(t, [2]string{"flat", ""}, [2]string{l.Body, l.ProblemType})
}

// A typical mistake is a secret instead of its hash.
func TestImpossibleKeysAreWarnings(t *testing.T) {
	hash := serverside.HashKey("X-Key", "secret")
	for _, c := range []struct{ key, keys, warned string }{
		{"header:X-Key", hash, ""},
		{"header:X-Key", "secret", "0"},
		{"header:X-Key", hash + ", " + strings.ToUpper(hash) + ", secret", "1 2"},
		{"cookie:sid", "secret", "0"}, {"form:user", "ann", "0"},
		{"ip", "192.0.2.1, '2001:db8::', '2001:db8::1', ann, 192.0.2.0/24", "2 3 4"},
		{"peer", "192.0.2.1", ""},
		{"user", "ann, '1'", ""},
		{"named(user, user)", "'user:ann', ann", "1"},
		{"named(key, header:X-Key)", "'key:" + hash + "', 'key:secret'", "1"},
		{"first(header:X-Key, user)", "'0:" + hash + "', '0:x', '1:x', '2:x', ann", "1 3 4"},
		{"join(ip, user)", "'9:192.0.2.13:ann'", ""},
	} {
		text := "allow: [{name: a, policies: 1/s, key: '" + c.key + "', keys: [" + c.keys + "]}]\nrules: [{policies: 1/s}]\n"
		l, err := rulefile.List("r.yaml", []byte(text), env())
		require.NoError(t, err)
		var warned []string
		for _, w := range l.Warnings {
			warned = append(warned, strings.Trim(strings.TrimPrefix(w.Field, "allow[0].keys"), "[]"))
			assert.NotContains(t, w.Error(), "secret", "which it may be")
		}
		assert.Equal(t, c.warned, strings.Join(warned, " "), text)
	}
}

func TestUnmatchableLimitTableIsAWarning(t *testing.T) {
	text := "rules:\n- {name: a, policies: 1/s}\n" +
		"- {name: b, policies: 1/s, stage: after-auth, key: 'header:X-Key', limits: contracts}\n"
	l, err := rulefile.List("r.yaml", []byte(text), env())
	require.NoError(t, err)
	require.Len(t, l.Warnings, 1)
	assert.ErrorContains(t, l.Warnings[0],
		"r.yaml:3:76: rules[1].limits: 1 of 1 keys of limits match nothing: header X-Key is")
	e := env()
	e.Limits["contracts"] = serverside.LimitTable{serverside.HashKey("X-Key", "ann"): {PerMinute: 1}}
	l, err = rulefile.List("r.yaml", []byte(text), e)
	require.NoError(t, err)
	assert.Empty(t, l.Warnings)
}

func TestLoginMayNameItsFailures(t *testing.T) {
	rule := "rules: [{name: a, policies: 100/1m}, {name: b, pattern: POST /b, login: LOGIN}]"
	cfg := parsed(t, "r.yaml", strings.Replace(rule, "LOGIN", "{account: 'form:user', failed: teapot}", 1))
	assert.True(t, cfg.Rules[1].Login.Failed(serverside.Response{Status: 418}))
	assert.False(t, cfg.Rules[1].Login.Failed(serverside.Response{Status: 200}))
	short, long := strings.Replace(rule, "LOGIN", "'form:user'", 1),
		strings.Replace(rule, "LOGIN", "{account: 'form:user'}", 1)
	assert.Equal(t, limiter(t, parsed(t, "r.yaml", short)).Hash(), limiter(t, parsed(t, "r.yaml", long)).Hash())
	assert.NotEqual(t, limiter(t, parsed(t, "r.yaml", short)).Hash(), limiter(t, cfg).Hash())
	for login, fault := range map[string]string{
		"{failed: teapot}": "r.yaml:1:73: rules[1].login: must have an account, as in form:user",
		"{account: usr}": `r.yaml:1:83: rules[1].login.account: "usr" is not a key: must be one of ip, peer, user: ` +
			`did you mean "user"?`,
		"[a]":                  "r.yaml:1:73: rules[1].login: is a list: must be an object",
		"user, policies: 0/1m": "r.yaml:1:89: rules[1].policies[0].quota: is 0: must be at least 1",
		"user, key: ip":        "r.yaml:1:84: rules[1].key: must not be set with login: the account is the key",
		"{acount: user}":       `r.yaml:1:74: rules[1].login: unknown key "acount": did you mean "account"?`,
	} {
		_, err := rulefile.Parse("r.yaml", []byte(strings.Replace(rule, "LOGIN", login, 1)), env())
		assert.EqualError(t, err, fault)
	}
}

func TestSyntaxErrorInALongFileHasItsLine(t *testing.T) {
	good := "- {name: x, pattern: '/p/{x}', policies: 60/1m}\n"
	others := 298
	if testenv.Long() {
		others = 998
	}
	for _, before := range []int{0, 1, others / 2, others} {
		text := "rules:\n" + strings.Repeat(good, before) + "  - {pattern: /p/{x}, policies: 1/s}\n" +
			strings.Repeat(good, others-before)
		_, err := rulefile.Parse("r.yaml", []byte(text), rulefile.Env{})
		require.Len(t, rulefile.Faults(err), 1)
		assert.Equal(t, before+2, rulefile.Faults(err)[0].Line, err)
	}
}

func TestLenientEnvAcceptsAnyFunction(t *testing.T) {
	text := `{body: ours, rules: [{policies: 1/s, key: 'join(tenant, ip)', cost: rows, limits: ` +
		`contracts, charge_if: bad}, {name: b, tier: plan, tiers: [{name: a, policies: 1/s}]}], ` +
		`allow: [{name: c, match: staff, policies: 1/s}]}`
	_, err := rulefile.Parse("r.yaml", []byte(text), rulefile.Env{})
	assert.Len(t, rulefile.Faults(err), 7)
	cfg, err := rulefile.Parse("r.yaml", []byte(text), rulefile.Env{Lenient: true})
	require.NoError(t, err)
	assert.Equal(t, 200, status(limiter(t, cfg).Wrap(fine), "GET", "/"))
	cfg, err = rulefile.Parse("r.yaml", []byte("rules: [{policies: 1/s, key: 'first(tenant, ip)'}]"),
		rulefile.Env{Lenient: true})
	require.NoError(t, err)
	assert.Equal(t, "1:192.0.2.1", cfg.Rules[0].Key.Of(httptest.NewRequest("GET", "/", nil)))
}

func TestMisspeltFunctionsAreWarningsIfLenient(t *testing.T) {
	for field, want := range map[string]string{
		"key: ipp":               `rules[0].key: "ipp" is not built in, so the program must provide it: did you mean "ip"?`,
		"key: 'join(user, per)'": `"per" is not built in, so the program must provide it: did you mean "peer"?`,
		"key: IP":                `did you mean "ip"?`,
		"charge_if: succeded":    `did you mean "succeeded"?`,
		"key: user":              "",
		"key: peers":             "", // a function of the program
		"key: tenant":            "",
		"cost: ipp":              "",
	} {
		text := []byte("rules: [{policies: 1/s, " + field + "}]")
		env := rulefile.Env{Lenient: true, Keys: map[string]serverside.Key{"peers": serverside.ClientIP()}}
		l, err := rulefile.List("r.yaml", text, env)
		require.NoError(t, err, field)
		if want == "" {
			assert.Empty(t, l.Warnings, field)
			continue
		}
		require.Len(t, l.Warnings, 1, field)
		assert.ErrorContains(t, l.Warnings[0], want)
	}
}

// The short form of a policy is the name that quota gives a policy without one.
func TestShortFormsAreNamesOfPolicies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for range 2000 {
		p := quota.Policy{Quota: 1 + rnd.Int64N(900), Algorithm: quota.Algorithm(rnd.IntN(5))}
		if rnd.IntN(4) == 0 {
			p.Algorithm, p.Calendar = quota.FixedWindow, quota.Calendar(1+rnd.IntN(3))
			p.Location = []*time.Location{nil, berlin}[rnd.IntN(2)]
		} else {
			p.Window = time.Duration(1+rnd.Int64N(100)) * []time.Duration{
				time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour,
			}[rnd.IntN(6)]
		}
		if p.Algorithm <= quota.LeakyBucket && rnd.IntN(2) == 0 {
			p.Burst = 1 + rnd.Int64N(100)
		}
		want, err := p.Compile()
		if err != nil {
			continue // its numbers cannot be counted exactly
		}
		read, err := rulefile.ParsePolicy(want.Name())
		require.NoError(t, err, want.Name())
		got, err := read.Compile()
		require.NoError(t, err, want.Name())
		assert.Equal(t, want.Policy(), got.Policy())
	}
}

// No file makes Parse panic. Faults have a position inside the file. A file that is valid as YAML is
// valid as JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole), false)
	f.Add([]byte(`{"rules": [{"policies": ["60/1m burst 10", {"quota": 1, "calendar": "day"}]}]}`), true)
	f.Add([]byte("a: &a [*a]"), false)
	f.Add([]byte("rules: [{policies: 1/s, key: 'join(first(ip, user), header:A)'}]"), false)
	f.Fuzz(func(t *testing.T, data []byte, json bool) {
		name := "r.yaml"
		if json {
			name = "r.json"
		}
		cfg, err := rulefile.Parse(name, data, env())
		if err == nil {
			_, err := serverside.New(cfg)
			require.NoError(t, err)
			return
		}
		faults := rulefile.Faults(err)
		require.NotEmpty(t, faults)
		lines := 1 + strings.Count(string(data),
			"\n") + strings.Count(string(data),
			"\r") + strings.Count(string(data),
			"\u2028") + strings.Count(string(data), "\u2029") + strings.Count(string(data), "\u0085")
		for _, fault := range faults {
			assert.Equal(t, name, fault.File)
			assert.NotEmpty(t, fault.Reason)
			assert.True(t, 1 <= fault.Line && fault.Line <= lines+1 && fault.Column >= 1, fault.Error())
		}
	})
}
