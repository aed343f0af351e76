package serverside_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// null is a ResponseWriter that discards what is written.
type null struct{ header http.Header }

func (w null) Header() http.Header         { return w.header }
func (w null) Write(b []byte) (int, error) { return len(b), nil }
func (w null) WriteHeader(int)             {}

func bare(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// request returns a request as a server creates it.
func request(method, target, peer string) *http.Request {
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = peer
	return r
}

// many returns n policies that never deny.
func many(n int) (policies []quota.Policy) {
	for i := range n {
		policies = append(policies, quota.Policy{Name: fmt.Sprint("many", i), Quota: 1e9, Window: 1e9})
	}
	return policies
}

// each returns one rule for each of policies.
func each(pattern string, policies ...quota.Policy) (rules []serverside.Rule) {
	for _, p := range policies {
		rules = append(rules, serverside.Rule{Name: p.Name, Pattern: pattern, Policies: []quota.Policy{p}})
	}
	return rules
}

func BenchmarkWrap(b *testing.B) {
	handler := http.HandlerFunc(bare)
	const pattern = "GET /v1/"
	for _, c := range []struct {
		name   string
		config serverside.Config
		routed string // the pattern that the request carries
	}{
		{name: "one rule", config: serverside.Config{Rules: each("", many(1)...)}},
		{name: "one rule, two fields", config: serverside.Config{Rules: each("", many(1)...), Style: ratelimit.Draft11}},
		{name: "one rule, no fields", config: serverside.Config{Rules: each("", many(1)...), FieldsOnDenialOnly: true}},
		{
			name:   "one rule, observed",
			config: serverside.Config{Rules: each("", many(1)...), Observe: func(serverside.Observation) {}},
		},
		{name: "two rules", config: serverside.Config{Rules: each("", many(2)...)}},
		{name: "four rules", config: serverside.Config{Rules: each("", many(4)...)}},
		{name: "four rules, no fields", config: serverside.Config{Rules: each("", many(4)...), FieldsOnDenialOnly: true}},
		{name: "four policies", config: serverside.Config{Rules: oneRule(many(4)...)}},
		{name: "pattern", config: serverside.Config{Rules: each(pattern, many(1)...)}},
		{name: "pattern, routed by it", config: serverside.Config{Rules: each(pattern, many(1)...)}, routed: pattern},
		{name: "four patterns", config: serverside.Config{Rules: each(pattern, many(4)...)}},
		{name: "denied", config: serverside.Config{Rules: oneRule(quota.PerDay(1)), Audit: silent}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w, r := null{make(http.Header)}, request("GET", "http://example.com/v1/users", "192.0.2.1:1234")
			h := must(b, c.config).Wrap(handler)
			r.Pattern = c.routed
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		w, r := null{make(http.Header)}, request("GET", "http://example.com/v1/users", "192.0.2.1:1234")
		for b.Loop() {
			clear(w.header)
			handler.ServeHTTP(w, r)
		}
	})
	b.Run("ServeMux.Handler alone", func(b *testing.B) { // for comparison with patterns
		mux, r := http.NewServeMux(), request("GET", "http://example.com/v1/users", "192.0.2.1:1234")
		mux.Handle(pattern, handler)
		b.ReportAllocs()
		for b.Loop() {
			mux.Handler(r)
		}
	})
}

func BenchmarkWrapParallel(b *testing.B) {
	h := limit(b, many(1)...).Wrap(http.HandlerFunc(bare))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w, r := null{make(http.Header)}, request("GET", "http://example.com/v1/users", "192.0.2.1:1234")
		for pb.Next() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}
	})
}
