package profiles_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// fromFile is the profile that a file has, with its commented proxies made real.
func fromFile(t testing.TB, file string, o profiles.Options) serverside.Config {
	t.Helper()
	require.NotEmpty(t, profiles.File(file), file)
	text := strings.ReplaceAll(string(profiles.File(file)), "# trusted_proxies", "trusted_proxies")
	cfg, err := rulefile.Parse(file, []byte(text), o.Env())
	require.NoError(t, err)
	return cfg
}

// everybody asks for everything that there is a rule for, in an order that looks like
// none.
func everybody(n int) (requests []func(http.Handler) answer) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for range n {
		what := pick("GET", "GET", "HEAD", "POST", "DELETE") + " " + pick("/", "/login", "/Signup", "/reset", "/register", "/search", "/upload", "/health", "/webhooks/a",
			"/api/items", "/api//search", "/api/auth/login", "/api/auth/register", "/api/auth/reset", "/api/contact", "/api/newsletter",
			"/api/public/x", "/api/export", "/api/account/x", "/api/data")
		peer := pick("203.0.113.45:1", "203.0.113.46:2", "[2001:db8::1]:3", "10.0.0.1:4")
		fields := []string{"X-Account", pick("ann", "bob")}
		for _, field := range [][]string{
			{"X-Forwarded-For", "", "203.0.113.45", "198.51.100.7, 203.0.113.47"}, {"X-Tenant", "", "", "acme"}, {"X-Token", "", "t1", "t2"},
			{"X-Api-Key", "", "k1", "k2"}, {"X-User", "", "ann", "203.0.113.45"}, {"X-Tier", "free", "pro", "gold"},
			{"X-Fails", "", "", "yes"}, {"X-Trusted", "", "", "", "", "", "yes"},
		} {
			fields = append(fields, field[0], pick(field[1:]...))
		}
		requests = append(requests, func(h http.Handler) answer {
			w := askFrom(peer, h, what, fields...)
			return answer{what, w.Code, w.Header(), w.Body.String()}
		})
	}
	return slices.Concat(requests, logins(7, "carl", 7), logins(3, "dora", 3))
}

// logins are attempts of an account from many addresses: some that fail, one that does
// not, and some that fail.
func logins(fail int, account string, more int) (requests []func(http.Handler) answer) {
	for i := range fail + 1 + more {
		fields := []string{"X-Account", account, "X-Fails", "yes"}
		if i == fail {
			fields = fields[:2]
		}
		requests = append(requests, func(h http.Handler) answer {
			w := askFrom(fmt.Sprintf("198.51.100.%d:1", i), h, "POST /login", fields...)
			return answer{account, w.Code, w.Header(), w.Body.String()}
		})
	}
	return requests
}

type answer struct {
	what   string
	status int
	header http.Header
	body   string
}

// Whoever takes the file has what the function makes: its rules, its fingerprint, its
// keys in the store, and every answer to everything that may be asked.
func TestAProfileAndItsFileDoTheSame(t *testing.T) {
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sameAsFile(t, p) })
		})
	}
}

func sameAsFile(t *testing.T, p profile) {
	var stores [2]witness
	var limiters [2]http.Handler
	for i := range stores {
		o := options()
		if p.tiers {
			o = withTiers(o)
		}
		o.Store = &stores[i]
		o.Limits = serverside.LimitTable{"k1": {PerMinute: 5}, "k2": {PerSecond: 1, PerDay: 9}}
		o.Trusted = func(r *http.Request) bool { return r.Header.Get("X-Trusted") != "" }
		o.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		cfg := p.config(o)
		if i == 1 {
			file := fromFile(t, p.file, o)
			assert.Equal(t, described(cfg), described(file))
			assert.NotEmpty(t, file.Description)
			file.Description = "" // which a profile has not
			assert.Equal(t, must(t, cfg).Hash(), must(t, file).Hash())
			cfg = file
		}
		limiters[i] = must(t, cfg).Wrap(handler)
	}
	seen := map[int]int{}
	for i, request := range everybody(1500) {
		want := request(limiters[0])
		require.Equal(t, want, request(limiters[1]), "request %d", i)
		seen[want.status]++
		if i%50 == 49 {
			time.Sleep(1234 * time.Millisecond)
		}
	}
	assert.Equal(t, stores[0].charged, stores[1].charged)
	assert.Greater(t, seen[200], 100, "%v", seen)
	assert.Greater(t, seen[429], 50, "the limits were met: %v", seen)
}

func described(cfg serverside.Config) (lines []string) {
	for _, r := range cfg.Rules {
		lines = append(lines, r.Name+": "+r.Describe())
	}
	return lines
}

// F113. The five paths with a limit of their own.
func TestTheRoutesOfTheExampleAreReadFromJSON(t *testing.T) {
	cfg := fromFile(t, "universal_routes.json", options())
	type route struct {
		path   string
		quota  int64
		window time.Duration
		ofUser bool
	}
	var routes []route
	for _, r := range cfg.Rules {
		require.Len(t, r.Policies, 1)
		routes = append(routes, route{r.Pattern, r.Policies[0].Quota, r.Policies[0].Window, r.Key != nil})
	}
	assert.Equal(t, []route{
		{"/api/auth/login", 5, time.Minute, false}, {"/api/auth/register", 3, time.Minute, false}, {"/api/contact", 5, time.Hour, false},
		{"/api/data", 100, time.Minute, true}, {"/api/export", 10, time.Hour, true},
	}, routes)
}

func TestEveryFileIsOneThatIsRead(t *testing.T) {
	names := map[string]bool{"universal_routes.json": true}
	for _, p := range all {
		names[p.file] = true
	}
	for _, name := range profiles.Files() {
		assert.True(t, names[name], "%s belongs to no profile", name)
		_, err := rulefile.Parse(name, profiles.File(name), profiles.Options{}.Env())
		assert.NoError(t, err, "as it stands")
	}
	assert.Len(t, profiles.Files(), len(names))
	assert.Nil(t, profiles.File("forgery.yaml"))
}

func TestTheZeroOptionsWork(t *testing.T) {
	for _, p := range all {
		cfg := p.config(profiles.Options{})
		h := limited(t, cfg)
		assert.Equal(t, 200, ask(h, "GET /").Code, p.name)
	}
}

func parse(text string) (serverside.Config, error) {
	return rulefile.Parse("rules.yaml", []byte(text), options().Env())
}
