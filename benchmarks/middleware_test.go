package benchmarks_test

import (
	"context"
	"net"
	"net/http"
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
	"github.com/heedhttp/heed/serverside"
)

// What a limiter adds to a handler that does nothing, in memory, by the peer's
// address, with a limit that is never reached and the fields it writes by
// default.

const lots = 1_000_000_000

// peer is httprate's key for a client that no proxy stands in front of.
func peer(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

var limiters = []struct {
	name string
	wrap func(testing.TB, http.Handler) http.Handler
}{
	{"bare", func(_ testing.TB, h http.Handler) http.Handler { return h }},
	{"heed", func(tb testing.TB, h http.Handler) http.Handler {
		l, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{Name: "all", Policies: []quota.Policy{quota.PerSecond(lots)}}}})
		require.NoError(tb, err)
		return l.Wrap(h)
	}},
	{"throttled", func(tb testing.TB, h http.Handler) http.Handler {
		store, err := memstore.NewCtx(65536)
		require.NoError(tb, err)
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(lots), MaxBurst: lots})
		require.NoError(tb, err)
		return (&throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}).RateLimit(h)
	}},
	{"throttled-map", func(tb testing.TB, h http.Handler) http.Handler { // which never forgets a key
		store, err := memstore.NewCtx(0)
		require.NoError(tb, err)
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(lots), MaxBurst: lots})
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

func BenchmarkMiddleware(b *testing.B) {
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, l := range limiters {
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

// A null is a ResponseWriter that costs nothing.
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
