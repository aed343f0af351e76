package profiles_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// fromFile reads a profile from its file, with the commented proxies.
func fromFile(t testing.TB, file string, o profiles.Options) serverside.Config {
	t.Helper()
	require.NotEmpty(t, profiles.File(file), file)
	text := strings.ReplaceAll(string(profiles.File(file)), "# trusted_proxies", "trusted_proxies")
	cfg, err := rulefile.Parse(file, []byte(text), o.Env())
	require.NoError(t, err)
	return cfg
}

func TestProfileEqualsItsFile(t *testing.T) {
	for _, p := range all {
		o := options()
		if p.tiers {
			o = withTiers(o)
		}
		o.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		cfg, file := p.config(o), fromFile(t, p.file, o)
		assert.NotEmpty(t, file.Description, p.name)
		assert.Equal(t, must(t, file).Hash(), must(t, cfg).Hash(), p.name)
		o.Proxies.Trusted = nil
		assert.NotEqual(t, must(t, file).Hash(), must(t, p.config(o)).Hash(), "%s: without proxies", p.name)
	}
}

func TestExampleRoutesAreReadFromJSON(t *testing.T) {
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
		{"/api/auth/login", 5, time.Minute, false}, {"POST /api/auth/login", 5, time.Minute, true},
		{"/api/auth/register", 3, time.Minute, false}, {"/api/contact", 5, time.Hour, false},
		{"/api/data", 100, time.Minute, true}, {"/api/export", 10, time.Hour, true},
	}, routes)
}

func TestEveryFileIsRead(t *testing.T) {
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

func parse(text string) (serverside.Config, error) { return parseNamed("rules.yaml", text, options()) }

func parseNamed(name, text string, o profiles.Options) (serverside.Config, error) {
	return rulefile.Parse(name, []byte(text), o.Env())
}

func TestBodiesOfFilesAreDocumented(t *testing.T) {
	for _, p := range all {
		l, err := rulefile.List(p.file, profiles.File(p.file), rulefile.Env{Lenient: true})
		require.NoError(t, err)
		out, err := export.Export("openapi", l, export.Options{})
		require.NoError(t, err)
		for _, gap := range out.Gaps {
			assert.NotEqual(t, "body", gap.Of, "%s: %v", p.name, gap)
		}
	}
}

// New returns faults of Options. A wrong field name panics.
func TestInvalidOptions(t *testing.T) {
	o := options()
	o.Store = struct{ quota.Store }{new(quota.Memory)}
	_, err := serverside.New(profiles.Forge(o))
	assert.ErrorContains(t, err, "serverside: Store: must be a quota.Settler")

	o = options()
	o.Proxies = serverside.Proxies{Trusted: []netip.Prefix{{}, netip.MustParsePrefix("10.1.2.3/8")}, IPv6Bits: 1000}
	h := limited(t, profiles.Forja(o))
	n := 0
	for range 100 {
		if askFrom("10.0.0.1:1", h, "GET /health", "X-Forwarded-For", "198.51.100.7").Code == 200 {
			n++
		}
	}
	assert.Equal(t, 100, n)
	o.Proxies.Fields = []string{"X Real"}
	assert.PanicsWithValue(t,
		`profiles: Options: forja.yaml:2:16: proxy_fields[0]: is "X Real": must be the name of a header field`,
		func() { profiles.Forja(o) })
}
