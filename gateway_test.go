package heed_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/internal/testenv"
)

// Thirty workers with the zero Transport, behind gateways that answer a plain 429.
// TestGatewaysWithoutHintsAreUsedNotFlooded does the same with models of these gateways, and always runs.
func TestRealGatewaysWithoutHintsAreUsedNotFlooded(t *testing.T) {
	testenv.NeedLong(t) // it measures shares in real time
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	addr := strings.TrimPrefix(service.URL, "http://")
	limit := gatewaytest.Limit{Rate: 20, Status: 429}
	t.Run("group", func(t *testing.T) { // it ends before service is closed
		for name, test := range map[string]struct {
			start func(testing.TB, string, gatewaytest.Limit) string
			burst int
			used  float64
		}{
			"nginx, burst 10": {gatewaytest.Nginx, 10, 0.75},
			"nginx, no burst": {gatewaytest.Nginx, 0, 0.75},
			"haproxy":         {gatewaytest.HAProxy, 0, 0.65},
			"varnish":         {gatewaytest.Varnish, 0, 0.75},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				limit := limit
				limit.Burst = test.burst
				url := test.start(t, addr, limit)
				for try := 1; ; try++ { // a busy machine may fail one try, but not three
					r := throughGateway(t, url, 25*time.Second)
					refused, used := float64(r.refused)/float64(r.sent), float64(r.done)/20/r.took.Seconds()
					t.Logf("%d done, %d lost in %v; %.1f %% of %d refused, %.0f %% used", r.done, r.lost, r.took, 100*refused, r.sent,
						100*used)
					if r.lost == 0 && refused <= 0.1 && used >= test.used {
						return
					}
					if !assert.Less(t, try, 3, "three tries failed") {
						return
					}
				}
			})
		}
	})
}

type throughput struct {
	sent, refused, done, lost int
	took                      time.Duration
}

func throughGateway(t *testing.T, url string, during time.Duration) (r throughput) {
	inner := &http.Transport{MaxIdleConnsPerHost: 30}
	defer inner.CloseIdleConnections()
	var mu sync.Mutex
	tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(req)
		mu.Lock()
		defer mu.Unlock()
		r.sent++
		if err == nil && resp.StatusCode == 429 {
			r.refused++
		}
		return resp, err
	})}
	start := time.Now()
	r.done, r.lost = work(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
		req, err := http.NewRequestWithContext(req.Context(), "GET", url, nil)
		if err != nil {
			return nil, err
		}
		return tr.RoundTrip(req)
	}), 30, 50*time.Millisecond, during)
	r.took = time.Since(start)
	return r
}
