package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

func TestMain(m *testing.M) {
	defer redistest.EndShared()
	m.Run()
}

// execute runs the command, and returns its output.
func execute(args ...string) (code int, said string) {
	var out bytes.Buffer
	s := &session{in: &out, out: &out, err: &out, now: time.Now().UTC()}
	return s.run(args), out.String()
}

// environment sets REDIS_URL to an empty Redis.
func environment(t *testing.T) *redis.Client {
	t.Helper()
	return environmentOf(t, redistest.Shared(t).Addr)
}

// environmentOf sets REDIS_URL to the Redis at addr.
func environmentOf(t *testing.T, addr string) *redis.Client {
	t.Helper()
	t.Setenv("REDIS_URL", "redis://"+addr+"/0")
	client := redis.NewClient(&redis.Options{
		Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// shopRules have every kind of count.
const shopRules = `
rules:
  - name: login
    pattern: POST /login
    stage: after-auth
    key: form:user
    policies: 2/15m log
    penalty: {strike: unauthorized, after: 1, within: 1h, first: 2h}
  - name: api
    pattern: /v1/
    key: user
    stage: after-auth
    policies: [3/1h, 1000/month]
    limits: contracts
  - name: search
    pattern: /search
    key: user
    stage: after-auth
    tier: plan
    tiers:
      - {name: free, policies: 2/1h}
      - {name: pro, policies: 20/1h burst 10}
  - name: try
    pattern: /try
    key: user
    stage: after-auth
    dry_run: true
    policies: 1/1h
`

// A shop is a server that limits by shopRules, in the Redis at REDIS_URL.
type shop struct {
	*testing.T
	rules   string // the file
	handler http.Handler
}

func newShop(t *testing.T, client *redis.Client) *shop {
	t.Helper()
	limits := &redisstore.Limits{Client: client, Timeout: time.Minute}
	t.Cleanup(func() { limits.Close() })
	s := &shop{T: t, rules: filepath.Join(t.TempDir(), "rules.yaml")}
	require.NoError(t, os.WriteFile(s.rules, []byte(shopRules), 0o600))
	env := rulefile.Env{
		Config: serverside.Config{
			Store: &redisstore.Store{Client: client, Timeout: time.Minute}, StoreTimeout: time.Minute,
			Audit: func(serverside.Event) {},
		},
		Keys: map[string]serverside.Key{
			"user": serverside.KeyFunc(func(r *http.Request) string { return r.URL.Query().Get("as") }),
		},
		Tiers: map[string]func(*http.Request) string{
			"plan": func(r *http.Request) string { return r.URL.Query().Get("plan") },
		},
		Limits: map[string]serverside.Limits{"contracts": limits},
	}
	cfg, err := rulefile.Parse(s.rules, []byte(shopRules), env)
	require.NoError(t, err)
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	s.handler = l.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	return s
}

// get sends n requests and returns the last status.
func (s *shop) get(n int, target string) (code int) {
	s.Helper()
	for range n {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		code = w.Code
	}
	return code
}

func (s *shop) login(user string) (code int) {
	s.Helper()
	r := httptest.NewRequest("POST", "/login", strings.NewReader(url.Values{"user": {user}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code
}

// columns returns the lines of a table, with columns separated by two spaces.
func columns(said string) (lines []string) {
	for line := range strings.Lines(said) {
		lines = append(lines, strings.TrimSpace(regexp.MustCompile(` {2,}`).ReplaceAllString(line, "  ")))
	}
	return lines
}

// assertLines compares lines with patterns in any order.
func assertLines(t *testing.T, patterns []string, said string) {
	t.Helper()
	lines := columns(said)
	assert.Len(t, lines, len(patterns), said)
	for _, pattern := range patterns {
		whole := regexp.MustCompile("^" + pattern + "$")
		assert.True(t, slices.ContainsFunc(lines, whole.MatchString), "%s is not in\n%s", pattern, said)
	}
}

const (
	clock = `(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d`
	until = clock + ` \([^)]+\)`
)

func TestStoreListShowsKeysLimitsAndTimes(t *testing.T) {
	s := newShop(t, environment(t))
	assert.Equal(t, 200, s.get(3, "/v1/?as=user:ann"))
	assert.Equal(t, 429, s.get(1, "/v1/?as=user:ann"))
	assert.Equal(t, 200, s.get(1, "/v1/?as=bob"))
	assert.Equal(t, 200, s.get(2, "/search?as=cat&plan=pro"))
	assert.Equal(t, 200, s.get(2, "/try?as=dan"))
	assert.Equal(t, 401, s.login("eve"))
	assert.Equal(t, 429, s.login("eve"))
	eve := "key:" + serverside.HashKey("Form user", "eve")

	code, said := execute("store", "list", "-rules", s.rules)
	assert.Zero(t, code)
	denied := []string{
		eve + `  login/penalty  -  blocked  ` + clock + ` \((2h|1h59m).*\)`,
		`key:cat  search/1h \(free\)  2/2  denied  ` + clock + ` \((30m|29m).*\)`,
		`key:user:ann  api/1h  3/3  denied  ` + clock + ` \((20m|19m).*\)`,
	}
	assertLines(t, append(denied,
		`KEY  LIMIT  USED  STATE  UNTIL`,
		`key:user:ann  api/month  3/1000  admitted  full at `+until,
		`key:bob  api/month  1/1000  admitted  full at `+until,
		`key:bob  api/1h  1/3  admitted  full at `+until,
		`key:cat  search/1h \(pro\)  2/10  admitted  full at `+until,
		`key:dan  try/1h  1/1  would be denied  `+until,
		eve+`  login/strikes  1/1  admitted  full at `+until,
		eve+`  login/15m  1/2  admitted  full at `+until,
		`5 keys, 3 of them denied\.`,
	), said)
	for i, pattern := range denied {
		assert.Regexp(t, pattern, columns(said)[i+1], "those who are denied longest first")
	}

	code, said = execute("store", "list", "-denied", "-rules", s.rules, "-n", "1")
	assert.Zero(t, code)
	assertLines(t, []string{
		`KEY .*`, denied[0], `2 more lines: use -n 3 to print all\.`, `5 keys, 3 of them denied\.`,
	}, said)

	const hint = "5 keys. Use -rules FILE to see which are denied, and until when."
	code, said = execute("store", "list")
	assert.Zero(t, code)
	assertLines(t, []string{
		`KEY  LIMIT  USED  STATE  UNTIL`,
		`key:user:ann  api/1h  3  \?  expires by ` + until, `key:user:ann  api/month  3  \?  .*`,
		`key:bob  api/1h  1  \?  .*`, `key:bob  api/month  1  \?  .*`, `key:cat  search/1h  2  \?  .*`,
		`key:dan  try/1h  1  \?  .*`,
		eve + `  login/15m  1  \?  .*`, eve + `  login/strikes  \d  \?  .*`, denied[0],
		regexp.QuoteMeta(hint),
	}, said)
	assert.Regexp(t, denied[0], columns(said)[1], "blocked keys first")
	_, said = execute("store", "list", "-prefix", "other:")
	assert.Equal(t, strings.Replace(hint, "5", "0", 1)+"\n", said)
}

func TestPenaltiesAreShownAsBlocksWithoutCounts(t *testing.T) {
	s := newShop(t, environment(t))
	require.Equal(t, 401, s.login("eve"))
	eve := "key:" + serverside.HashKey("Form user", "eve")
	const blocked = `"login/penalty": blocked until ` + clock + ` \((2h|1h59m).*\)`
	const used = `"login/15m": 1 used at .*`
	code, said := execute("store", "show", eve, "-rules", s.rules)
	assert.Zero(t, code)
	assertLines(t, []string{
		eve, blocked, `"login/15m": 1 of 2 used, .*`, `"login/strikes": 1 of 1 used, full at .*`,
	}, said)
	_, said = execute("store", "show", eve)
	assertLines(t, []string{eve, blocked, used, `"login/strikes": \d+ used at .*`, `full by .*`}, said)
	_, said = execute("store", "reset", eve)
	assertLines(t, []string{blocked, used, `"login/strikes": \d+ used at .*`, eve + ` is reset\. .*`}, said)
}

func TestPenaltiesThatAreOverDoNotBlock(t *testing.T) {
	s := &session{now: time.Unix(0, 0).UTC()}
	c := &storeCommand{session: s}
	begin := time.Unix(1795262400, 0)
	state := quota.State{
		Name: "login/penalty", Bucket: quota.Bucket{Time: begin.UnixMicro(), Level: 12_000_999, Unit: 1},
	}
	n := withoutRules(state.Name)[0]
	assert.Equal(t, `"login/penalty": blocked until 00:00:12 (12s)`, c.standing(n, state, begin))
	assert.Empty(t, c.standing(n, state, begin.Add(12*time.Second)))
	state.DryRun = true
	assert.Equal(t, `"login/penalty": would be blocked until 00:00:12 (12s)`, c.standing(n, state, begin))
	assert.False(t, n.row(state, begin.UnixMicro()).denied)
}

// Limits that the file lacks are still listed.
func TestStoreListMarksUnknownLimits(t *testing.T) {
	s := newShop(t, environment(t))
	s.get(1, "/v1/?as=bob")
	other := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(other, []byte("rules: [{name: api, policies: 5/1m}]"), 0o600))
	code, said := execute("store", "list", "-rules", other)
	assert.Zero(t, code)
	assertLines(t, []string{
		`KEY .*`, `key:bob  api/1h  1  \?  .*`, `key:bob  api/month  1  \?  .*`, `1 key, 0 of them denied\.`,
		`\? marks limits that the file does not have.*`,
	}, said)
	code, said = execute("store", "list", "-rules", "testdata/bad.yaml")
	assert.Equal(t, wrong, code)
	assert.Contains(t, said, "testdata/bad.yaml:")
}

func TestStoreShowAcceptsEverySpellingOfAKey(t *testing.T) {
	client := environment(t)
	s := newShop(t, client)
	require.Equal(t, 429, s.get(4, "/v1/?as=user:ann"))
	s.get(1, "/v1/") // of 192.0.2.1
	for _, spelt := range []string{"key:user:ann", "user:ann", "heed:quota:2:key:user:ann"} {
		code, said := execute("store", "show", spelt, "-rules", s.rules)
		assert.Zero(t, code, spelt)
		assertLines(t, []string{
			"key:user:ann", `"api/1h": 3 of 3 used, denied until ` + until, `"api/month": 3 of 1000 used, full at ` + until,
		}, said)
	}
	code, said := execute("store", "show", "user:ann")
	assert.Zero(t, code)
	assertLines(t, []string{
		"key:user:ann", `"api/1h": 3 used at \S+ \S+ UTC`, `"api/month": 3 used at \S+ \S+ UTC`,
		`full by ` + until + ` at the latest; use -rules FILE to see whether it is denied`,
	}, said)
	for _, spelt := range []string{"192.0.2.1", "key:192.0.2.1", "::ffff:192.0.2.1"} {
		code, said = execute("store", "show", spelt)
		assert.Zero(t, code, spelt)
		assert.Contains(t, said, "192.0.2.1\n")
	}
	code, said = execute("store", "show", "-prefix", "other:", "key:user:ann")
	assert.Equal(t, wrong, code, said)
}

func TestStoreShowReportsUnknownKeys(t *testing.T) {
	s := newShop(t, environment(t))
	s.get(1, "/v1/?as=user:ann")
	s.get(1, "/v1/?as=user:hannah")
	for _, do := range []string{"show", "reset"} {
		code, said := execute("store", do, "ann")
		assert.Equal(t, wrong, code)
		assert.Equal(t, "heed: no such key: it has used nothing, or has another name\n"+
			"did you mean key:user:ann\n"+
			"headers, cookies and form values are hashed: heed rules key header:NAME prints the hash of one\n", said)
		code, said = execute("store", do, "s3cret")
		assert.Equal(t, wrong, code)
		assert.NotContains(t, said, "s3cret")
		assert.NotContains(t, said, "did you mean")
	}
	assert.Equal(t, []string{"user:ann", "key:user:ann", "default:user:ann"}, spellings("user:ann", "heed:quota:2:"))
	assert.Contains(t, spellings("2001:db8:1:2:3:4:5:6", ""), "key:2001:db8:1:2::")
}

func TestStoreResetAdmitsAKeyAgain(t *testing.T) {
	s := newShop(t, environment(t))
	require.Equal(t, 429, s.get(4, "/v1/?as=user:ann"))
	code, said := execute("store", "reset", "user:ann")
	assert.Zero(t, code)
	assertLines(t, []string{
		`"api/1h": 3 used at .*`, `"api/month": 3 used at .*`,
		`key:user:ann is reset\. Every process sees this within a second\.`,
	}, said)
	assert.Eventually(t, func() bool { return s.get(1, "/v1/?as=user:ann") == 200 }, time.Minute, 10*time.Millisecond)
	assert.Equal(t, 200, s.get(1, "/v1/?as=user:ann"), "all of it is back")
}

func TestLimitsSetRaisesOneKey(t *testing.T) {
	client := environmentOf(t, redistest.Start(t).Addr) // which has no subscribers left from another test
	s := newShop(t, client)
	require.Equal(t, 429, s.get(4, "/v1/?as=user:ann"))
	require.Eventually(t, func() bool { // it subscribes in the background
		return client.PubSubNumSub(t.Context(), "heed:limits:changed").Val()["heed:limits:changed"] == 1
	}, time.Minute, time.Millisecond)
	code, said := execute("limits", "show", "user:ann")
	assert.Equal(t, wrong, code)
	assert.Equal(t, "heed: user:ann has no limits of its own\n", said)

	code, said = execute("limits", "set", "key:user:ann", "per_hour=5", "per_day=0")
	assert.Zero(t, code)
	assert.Equal(t, "Subscribers informed: 1.\nuser:ann: 5 per 1h\nuser:ann: no limit per 1d\n", said)
	assert.Eventually(t, func() bool { return s.get(1, "/v1/?as=user:ann") == 200 }, time.Minute, 10*time.Millisecond)
	_, said = execute("store", "show", "user:ann", "-rules", s.rules)
	assert.Regexp(t, `"api/1h \(its own\)": [45] of 5 used`, said, "three before, and some since")
	assert.Contains(t, said, `"api/month": 3 used at`, "which is not enforced any more")
	assert.Equal(t, 200, s.get(1, "/v1/?as=bob"), "others have theirs")
	assert.Equal(t, 429, s.get(3, "/v1/?as=bob"))

	code, said = execute("limits", "unset", "user:ann")
	assert.Zero(t, code)
	assert.Contains(t, said, "user:ann has no limits of its own any more: the limits of the rules apply.")
	assert.Eventually(t, func() bool { return s.get(1, "/v1/?as=user:ann") == 429 }, time.Minute, 10*time.Millisecond)
	code, _ = execute("limits", "unset", "user:ann")
	assert.Equal(t, wrong, code)

	code, said = execute("limits", "set", "bob", "blocked=1", "per_hour=9")
	assert.Zero(t, code)
	assert.Equal(t, "Subscribers informed: 1.\nbob: blocked\nbob: 9 per 1h\n", said)
	assert.Eventually(t, func() bool { return s.get(1, "/v1/?as=bob") == 403 }, time.Minute, 10*time.Millisecond)
	code, said = execute("limits", "set", "bob", "blocked=0")
	assert.Zero(t, code)
	assert.Equal(t, "Subscribers informed: 1.\nbob: 9 per 1h\n", said)
	assert.Eventually(t, func() bool { return s.get(1, "/v1/?as=bob") == 200 }, time.Minute, 10*time.Millisecond)

	_, _ = execute("limits", "unset", "bob")
	code, said = execute("limits", "set", "bob", "blocked=0")
	assert.Zero(t, code, "it is what was asked for")
	assert.Equal(t, "Subscribers informed: 1.\nbob: not blocked\n", said)

	code, said = execute("limits", "set", "bob", "-prefix", "other:", "per_second=1", "per_minute=7")
	assert.Zero(t, code)
	assert.Contains(t, said, "no process is subscribed")
	assert.Equal(t, map[string]string{"per_second": "1", "per_minute": "7"},
		client.HGetAll(t.Context(), "other:bob").Val())
}

func TestLimitsSetRefusesInvalidLimits(t *testing.T) {
	client := environment(t)
	for _, c := range [][2]string{
		{"per_week=1", "with per_second"}, {"120", "must be like per_minute=120"},
		{"blocked", `blocked is "": must be 0 or 1`}, {"blocked=2", "must be 0 or 1"},
		{"per_day=", `is "": must be a whole number`},
		{"per_day=-1",
			`is "-1": must be a whole number`}, {"per_day=1e3", "must be a whole number"},
		{"per_day=9223372036854775807", "cannot be counted"},
	} {
		code, said := execute("limits", "set", "ann", "per_minute=1", c[0])
		assert.Equal(t, wrong, code, c[0])
		assert.Contains(t, said, c[1])
	}
	assert.Empty(t, client.Keys(t.Context(), "*").Val())
	require.NoError(t, client.HSet(t.Context(), "heed:limits:ann", "per_week", 5).Err())
	code, said := execute("limits", "show", "ann")
	assert.Equal(t, wrong, code)
	assert.Contains(t, said, "per_week: is unknown")
}

func TestUnreachableRedisIsAFault(t *testing.T) {
	commands := [][]string{
		{"store", "list"}, {"store", "show", "key:ann"}, {"store", "reset", "key:ann"},
		{"limits", "show", "ann"}, {"limits", "set", "ann", "per_day=1"}, {"limits", "unset", "ann"},
	}
	t.Setenv("REDIS_URL", "")
	for _, args := range commands {
		code, said := execute(args...)
		assert.Equal(t, wrong, code)
		assert.Contains(t, said, "redisstore: REDIS_URL is not set: for example redis://")
	}
	_, said := execute("limits", "set", "ann", "foo")
	assert.Contains(t, said, `"foo" must be like per_minute=120`, "arguments are checked first")
	fake := redistest.NewFake(t, redistest.WrongType)
	t.Setenv("REDIS_URL", "redis://:s3cret@"+fake.Addr)
	for _, args := range commands {
		code, said := execute(args...)
		assert.Equal(t, wrong, code, args)
		assert.NotContains(t, said, "s3cret")
	}
	t.Setenv("REDIS_URL", "redis://:s3cret@127.0.0.1:1")
	for _, args := range commands[:3] {
		code, said := execute(args...)
		assert.Equal(t, wrong, code, args)
		assert.Contains(t, said, "connection refused")
		assert.NotContains(t, said, "s3cret")
	}
}

func TestStoreListNeedsPermissionToScan(t *testing.T) {
	client := environment(t)
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">any", "~*", "+@all", "-scan").Err())
	t.Setenv("REDIS_URL", "redis://limiter:any@"+client.Options().Addr)
	code, said := execute("store", "list")
	assert.Equal(t, wrong, code)
	assert.Contains(t, said, "use a Redis user that may SCAN")
	code, said = execute("store", "show", "ann")
	assert.Equal(t, wrong, code)
	assert.Contains(t, said, "no such key")
}

func TestSlidingWindowCountShowsThePreviousWindow(t *testing.T) {
	s := &session{now: time.Unix(0, 0).UTC()}
	state := quota.State{
		Name: "api/1d", DryRun: true, Bucket: quota.Bucket{Time: 1795262400000000, Level: 9, Unit: 2, Prev: 3},
	}
	assert.Equal(t, `"api/1d": 4.5 used at 2026-11-21 12:00:00 UTC, and 3 in the window before, as a dry run`,
		s.owed(state))
}

func TestLargeCountsAreShownInFull(t *testing.T) {
	s := &session{now: time.Unix(0, 0).UTC()}
	for want, b := range map[string]quota.Bucket{
		"1234567":    {Level: 1234567, Unit: 1},
		"123456.333": {Level: 370369, Unit: 3},
		"0.5":        {Level: 1, Unit: 2},
	} {
		assert.Contains(t, s.owed(quota.State{Name: "api", Bucket: b}), ": "+want+" used at ")
	}
}

func TestUnreadableCountIsAFault(t *testing.T) {
	client := environment(t)
	require.NoError(t, client.Set(t.Context(), "heed:quota:2:key:ann", "nonsense", 0).Err())
	code, said := execute("store", "show", "key:ann")
	assert.Equal(t, wrong, code)
	assert.Contains(t, said, "1 count cannot be read, and has no effect")
}

func TestKeysAreEscapedForTerminals(t *testing.T) {
	store := &redisstore.Store{Client: environment(t), Timeout: time.Minute}
	limit, err := quota.PerHour(1).Compile()
	require.NoError(t, err)
	_, err = store.Take(context.Background(), nil, quota.Charge{Key: "key:\x1b[2J", Limit: limit})
	require.NoError(t, err)
	_, said := execute("store", "list")
	assert.NotContains(t, said, "\x1b")
	assert.Contains(t, said, `"key:\x1b[2J"`)
}

// Both counts of a login are listed, but not its known networks.
func TestStoreListShowsLogins(t *testing.T) {
	client := environment(t)
	s := newShop(t, client)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := "rules: [{name: sign-in, pattern: POST /login, login: \"form:user\"}, {name: ip, policies: 100/1m}]"
	require.NoError(t, os.WriteFile(rules, []byte(text), 0o600))
	cfg, err := rulefile.Parse(rules, []byte(text), rulefile.Env{Config: serverside.Config{
		Store: &redisstore.Store{Client: client, Timeout: time.Minute}, StoreTimeout: time.Minute,
	}})
	require.NoError(t, err)
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	s.handler = l.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("user") == "ann" {
			w.WriteHeader(http.StatusOK)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	assert.Equal(t, 401, s.login("eve"))
	assert.Equal(t, 200, s.login("ann"))
	code, said := execute("store", "list", "-rules", rules)
	assert.Zero(t, code)
	assert.NotContains(t, said, "?")
	assert.Regexp(t, `sign-in/account/1m +1/5`, said)
	assert.Regexp(t, `sign-in/1m +1/5`, said)
	assert.NotContains(t, said, "sign-in/known")
}
