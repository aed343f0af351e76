package benchmarks_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// These benchmarks measure what a limiter adds to a handler that does nothing. It limits by the
// address of the peer, its limit is never reached, and it writes its default fields.

const lots = 1_000_000_000

// peer is the key of httprate for clients without a proxy.
func peer(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

// A limiter is a library, and how it wraps a handler.
type limiter struct {
	name string
	wrap func(testing.TB, http.Handler) http.Handler
}

var unlimited = limiter{"bare", func(_ testing.TB, h http.Handler) http.Handler { return h }}

// rules returns a rule for each name, for requests that match pattern.
func rules(pattern string, names ...string) (all []serverside.Rule) {
	for _, name := range names {
		all = append(all, serverside.Rule{Name: name, Pattern: pattern, Policies: []quota.Policy{quota.PerSecond(lots)}})
	}
	return all
}

// limitedBy is heed.
func limitedBy(cfg serverside.Config) func(testing.TB, http.Handler) http.Handler {
	return func(tb testing.TB, h http.Handler) http.Handler {
		l, err := serverside.New(cfg)
		require.NoError(tb, err)
		return l.Wrap(h)
	}
}

var limiters = []limiter{
	unlimited,
	{"heed", limitedBy(serverside.Config{Rules: rules("", "all")})},
	{"throttled", func(tb testing.TB, h http.Handler) http.Handler {
		store, err := memstore.NewCtx(65536)
		require.NoError(tb, err)
		allowed := throttled.RateQuota{MaxRate: throttled.PerSec(lots), MaxBurst: lots}
		l, err := throttled.NewGCRARateLimiterCtx(store, allowed)
		require.NoError(tb, err)
		return (&throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}).RateLimit(h)
	}},
	{"throttled-map", func(tb testing.TB, h http.Handler) http.Handler { // never evicts a key
		store, err := memstore.NewCtx(0)
		require.NoError(tb, err)
		allowed := throttled.RateQuota{MaxRate: throttled.PerSec(lots), MaxBurst: lots}
		l, err := throttled.NewGCRARateLimiterCtx(store, allowed)
		require.NoError(tb, err)
		return (&throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}).RateLimit(h)
	}},
	{"httprate", func(_ testing.TB, h http.Handler) http.Handler {
		return httprate.LimitBy(lots, time.Second, peer)(h)
	}},
	{"ulule", func(_ testing.TB, h http.Handler) http.Handler {
		l := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Second, Limit: lots})
		return stdlib.NewMiddleware(l).Handler(h)
	}},
	{"go-limiter", func(tb testing.TB, h http.Handler) http.Handler {
		store, err := memorystore.New(&memorystore.Config{Tokens: lots, Interval: time.Second})
		require.NoError(tb, err)
		tb.Cleanup(func() { store.Close(context.Background()) })
		m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
		require.NoError(tb, err)
		return m.Handle(h)
	}},
	{"tollbooth", func(_ testing.TB, h http.Handler) http.Handler {
		return tollbooth.LimitHandler(tollbooth.NewLimiter(lots, nil), h)
	}},
}

const things = "GET /v1/things"

func BenchmarkMiddleware(b *testing.B) { serve(b, limiters...) }

// heed writes two fields in the style of the IETF draft alone.
func BenchmarkMiddlewareTwoFields(b *testing.B) {
	serve(b, limiter{"heed", limitedBy(serverside.Config{Rules: rules("", "all"), Style: ratelimit.Draft11})})
}

// Four rules of heed, which take one decision, beside one limit of each rival.
func BenchmarkMiddlewareFourRules(b *testing.B) {
	four := slices.Clone(limiters)
	four[1].wrap = limitedBy(serverside.Config{Rules: rules("", "one", "two", "three", "four")})
	serve(b, four...)
}

// What a pattern adds, beside the time in which http.ServeMux finds a handler by it.
func BenchmarkMiddlewarePattern(b *testing.B) {
	serve(b, limiter{"heed", limitedBy(serverside.Config{Rules: rules(things, "all")})})
	b.Run("ServeMux", findHandler)
}

// The same if the router in front has matched the pattern already.
func BenchmarkMiddlewareRouted(b *testing.B) {
	routed := limitedBy(serverside.Config{Rules: rules(things, "all")})
	serve(b, limiter{"heed", func(tb testing.TB, h http.Handler) http.Handler {
		h = routed(tb, h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = things
			h.ServeHTTP(w, r)
		})
	}})
	b.Run("ServeMux", findHandler)
}

func findHandler(b *testing.B) {
	mux, req := http.NewServeMux(), request(b, "GET", "http://example.com/v1/things", nil)
	mux.Handle(things, nothing)
	b.ReportAllocs()
	for b.Loop() {
		mux.Handler(req)
	}
}

var nothing = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// serve measures a request through each limiter.
func serve(b *testing.B, all ...limiter) {
	for _, l := range all {
		b.Run(l.name, func(b *testing.B) {
			h, w, req := l.wrap(b, nothing), null{make(http.Header)}, request(b, "GET", "http://example.com/v1/things", nil)
			req.RemoteAddr = "192.0.2.1:1234"
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, req)
			}
		})
	}
}

// A null is a ResponseWriter that does nothing.
type null struct{ header http.Header }

func (w null) Header() http.Header         { return w.header }
func (w null) Write(b []byte) (int, error) { return len(b), nil }
func (w null) WriteHeader(int)             {}

func TestEveryLimiterLetsThrough(t *testing.T) {
	for _, l := range limiters {
		served := 0
		h := l.wrap(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		for range 10 {
			req := request(t, "GET", "http://example.com/v1/things", nil)
			req.RemoteAddr = "192.0.2.1:1234"
			h.ServeHTTP(null{make(http.Header)}, req)
		}
		require.Equal(t, 10, served, l.name)
	}
}
