package profiles_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// A profile is a profile with its name and file.
type profile struct {
	name   string
	config func(profiles.Options) serverside.Config
	file   string
	tiers  bool
}

var all = []profile{
	{"Forge", profiles.Forge, "forge.yaml", false},
	{"Forja", profiles.Forja, "forja.yaml", false},
	{"Universal", profiles.Universal, "universal.yaml", false},
	{"Universal with tiers", profiles.Universal, "universal_tiers.yaml", true},
	{"API", profiles.API, "api.yaml", false},
	{"Patterns", profiles.Patterns, "patterns.yaml", false},
	{"Patterns with tiers", profiles.Patterns, "patterns_tiers.yaml", true},
}

// options returns Options that read the authenticated client from header fields.
func options() profiles.Options {
	return profiles.Options{
		Account: serverside.KeyFunc(field("X-Account")),
		Tenant:  serverside.KeyFunc(field("X-Tenant")),
		Token:   serverside.KeyFunc(field("X-Token")),
		APIKey:  serverside.KeyFunc(field("X-Api-Key")),
		User:    serverside.KeyFunc(field("X-User")),
		Audit:   func(serverside.Event) {},
	}
}

func withTiers(o profiles.Options) profiles.Options {
	o.Tier = field("X-Tier")
	return o
}

func field(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

func must(t testing.TB, cfg serverside.Config) *serverside.Limiter {
	t.Helper()
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	return l
}

// handler answers 401 to a request with X-Fails, and 200 to others.
var handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Fails") != "" {
		w.WriteHeader(http.StatusUnauthorized)
	}
	io.WriteString(w, "ok")
})

// limited returns handler behind a profile.
func limited(t testing.TB, cfg serverside.Config) http.Handler {
	t.Helper()
	return must(t, cfg).Wrap(handler)
}

// ask sends "METHOD /path" from 203.0.113.45, with header fields given in pairs.
func ask(h http.Handler, what string, fields ...string) *httptest.ResponseRecorder {
	return askFrom("203.0.113.45:1234", h, what, fields...)
}

func askFrom(peer string, h http.Handler, what string, fields ...string) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(what, " ")
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// spend sends up to most requests until one is denied. It returns how many were admitted, and the
// last response.
func spend(h http.Handler, most int, what string, fields ...string) (admitted int, last *httptest.ResponseRecorder) {
	for range most {
		if last = ask(h, what, fields...); last.Code == 429 || last.Code == 503 {
			return admitted, last
		}
		admitted++
	}
	return admitted, last
}

// numbers returns limit, remaining and reset in a response.
func numbers(w *httptest.ResponseRecorder) (all []string) {
	for _, family := range []string{"X-Ratelimit-", "Ratelimit-"} {
		for _, name := range []string{"Limit", "Remaining", "Reset"} {
			all = append(all, w.Header()[family+name]...)
		}
	}
	return all
}

// A witness is a Store that records its charges.
type witness struct {
	quota.Memory

	mu      sync.Mutex
	charged []string // "key limit"
}

func (w *witness) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	w.mu.Lock()
	for _, c := range charges {
		w.charged = append(w.charged, c.Key+" "+c.Limit.Name())
	}
	w.mu.Unlock()
	return w.Memory.Take(ctx, dst, charges...)
}

// chargedBeside returns the charges except those of one rule.
func (w *witness) chargedBeside(rule string) []string {
	return slices.DeleteFunc(w.charged, func(charge string) bool { return strings.Contains(charge, " "+rule+"/") })
}

// down is a Store that fails.
type down struct{ quota.Memory }

func (*down) Take(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
	return nil, io.ErrUnexpectedEOF
}

// authenticated returns next behind an authentication that accepts ann and bob.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "of ")
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Set("X-User", name)
		next.ServeHTTP(w, r)
	})
}
