package docs_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// smaller returns the quickstart's rules with smaller numbers, which a slow client exceeds, too.
func smaller(t *testing.T) []byte {
	rules := read(t, "../examples/quickstart/rules.yaml")
	rules = strings.Replace(rules, "50/1s burst 100", "5/1m burst 10", 1)
	return []byte(strings.Replace(rules, "60/1m burst 10", "60/1h burst 3", 1))
}

// layers starts an application with all rules, and an nginx in front of it with five times the
// limits by address. arrived counts requests that reach the application.
func layers(t *testing.T, rules []byte, arrived *atomic.Int64) (url string) {
	env := rulefile.Env{
		Keys: map[string]serverside.Key{
			"user": serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") }),
		},
		Config: serverside.Config{Audit: func(serverside.Event) {}},
	}
	listing, err := rulefile.List("rules.yaml", rules, env)
	require.NoError(t, err)
	edge, err := export.Export("nginx", listing, export.Options{Times: 5})
	require.NoError(t, err)
	cfg, err := rulefile.Parse("rules.yaml", rules, env)
	require.NoError(t, err)
	limiter, err := serverside.New(cfg)
	require.NoError(t, err)
	limited := limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		limited.ServeHTTP(w, r)
	}))
	t.Cleanup(app.Close)
	return gatewaytest.NginxWith(t, strings.TrimPrefix(app.URL, "http://"), edge.Text)
}

func post(t *testing.T, url string) (status int, header http.Header) {
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, nil)
	require.NoError(t, err)
	req.Header.Set("X-User", "ann")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.Header
}

// The application answers clients that exceed its limit a little, and charges each request once.
// The edge stops a flood.
func TestTheApplicationDecidesAndTheEdgeStopsFloods(t *testing.T) {
	var arrived atomic.Int64
	url := layers(t, smaller(t), &arrived)
	arrived.Store(0) // forget the requests that waited for nginx to start
	for _, want := range []struct {
		status int
		left   string
	}{{200, "2"}, {200, "1"}, {200, "0"}, {429, "0"}, {429, "0"}} {
		status, header := post(t, url+"/v1/orders")
		assert.Equal(t, want.status, status)
		assert.Equal(t, want.left, header.Get("X-RateLimit-Remaining"), "the application answers")
	}
	require.EqualValues(t, 5, arrived.Load())

	var admitted, told, stopped atomic.Int64
	begin := time.Now()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 75 {
				switch status, header := post(t, url+"/"); {
				case status == http.StatusOK:
					admitted.Add(1)
				case header.Get("RateLimit") != "":
					told.Add(1)
				default:
					assert.Equal(t, http.StatusTooManyRequests, status)
					assert.NotEmpty(t, header.Get("Retry-After"))
					stopped.Add(1)
				}
			}
		})
	}
	all.Wait()
	minutes := time.Since(begin).Minutes()
	assert.EqualValues(t, 300, admitted.Load()+told.Load()+stopped.Load())
	assert.Equal(t, arrived.Load()-5, admitted.Load()+told.Load(), "what the edge stops does not arrive")
	assert.Positive(t, stopped.Load())
	assert.Positive(t, told.Load())
	assert.LessOrEqual(t, float64(arrived.Load()-5), 50+25*minutes+1)
	assert.LessOrEqual(t, float64(admitted.Load()), 10+5*minutes+1)
}
