package serverside_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// null is a ResponseWriter that costs nothing.
type null struct{ header http.Header }

func (w null) Header() http.Header         { return w.header }
func (w null) Write(b []byte) (int, error) { return len(b), nil }
func (w null) WriteHeader(int)             {}

// plenty is one rule without Pattern that never denies.
func plenty(tb testing.TB, more ...serverside.Rule) *serverside.Limiter {
	many := []quota.Policy{{Name: "many", Quota: 1e9, Window: 1e9}}
	rules := append([]serverside.Rule{{Name: "all", Policies: many}}, more...)
	l, err := serverside.New(serverside.Config{Rules: rules})
	require.NoError(tb, err)
	return l
}

func bare(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// request is as a server makes it.
func request(method, target, peer string) *http.Request {
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = peer
	return r
}

func BenchmarkWrap(b *testing.B) {
	handler := http.HandlerFunc(bare)
	two := serverside.Rule{Name: "two", Policies: []quota.Policy{{Name: "more", Quota: 1e9, Window: 1e9}}}
	pattern := serverside.Rule{Name: "v1", Pattern: "/v1/", Policies: two.Policies}
	one, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{Policies: []quota.Policy{quota.PerDay(1)}}}})
	require.NoError(b, err)
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare", handler},
		{"one rule", plenty(b).Wrap(handler)},
		{"two rules", plenty(b, two).Wrap(handler)},
		{"pattern", plenty(b, pattern).Wrap(handler)},
		{"denied", one.Wrap(handler)},
	} {
		b.Run(c.name, func(b *testing.B) {
			w, r := null{make(http.Header)}, request("GET", "http://example.com/v1/users", "192.0.2.1:1234")
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				c.handler.ServeHTTP(w, r)
			}
		})
	}
}

func BenchmarkWrapParallel(b *testing.B) {
	h := plenty(b).Wrap(http.HandlerFunc(bare))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w, r := null{make(http.Header)}, request("GET", "http://example.com/v1/users", "192.0.2.1:1234")
		for pb.Next() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}
	})
}
