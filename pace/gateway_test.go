package pace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A meter is a base that writes down when each request was answered, and whether
// it was refused.
type meter struct {
	base  http.RoundTripper
	start time.Time

	mu      sync.Mutex
	answers []answer // guarded by mu
}

type answer struct {
	sent    time.Duration // since start
	refused bool
}

func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := time.Since(m.start)
	resp, err := m.base.RoundTrip(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = append(m.answers, answer{sent, err == nil && resp.StatusCode >= 400})
	return resp, err
}

// between counts what was sent from one moment to another.
func (m *meter) between(from, to time.Duration) (sent, refused int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.answers {
		if from <= a.sent && a.sent < to {
			sent++
			if a.refused {
				refused++
			}
		}
	}
	return sent, refused
}

// drive has workers send one request after the other for some time.
func drive(t *testing.T, url string, pacer heed.Pacer, during time.Duration) *meter {
	base := &http.Transport{MaxIdleConnsPerHost: 16}
	defer base.CloseIdleConnections()
	m := &meter{base: base, start: time.Now()}
	client := &http.Client{Transport: &heed.Transport{Base: m, Pacer: pacer}}
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if !assert.NoError(t, err) {
					return
				}
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	workers.Wait()
	return m
}

// Gateways that tell nothing but a status: 16 workers find their rate, and keep to it.
func TestAdaptiveFindsTheRateOfRealGateways(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	addr := strings.TrimPrefix(service.URL, "http://")
	during, settled, mostRefused, least := 5*time.Second, 3*time.Second, 0.12, 0.1 // still on its way up and down
	if os.Getenv("HEED_LONG") != "" {
		during, settled, mostRefused, least = 40*time.Second, 10*time.Second, 0.05, 0.6
	}
	const rate = 50
	t.Run("group", func(t *testing.T) {
		for name, start := range map[string]func(*testing.T) string{
			"nginx 503": func(t *testing.T) string {
				return gatewaytest.Nginx(t, addr, gatewaytest.Limit{Rate: rate, Burst: 10, Status: 503})
			},
			"nginx 429": func(t *testing.T) string {
				return gatewaytest.Nginx(t, addr, gatewaytest.Limit{Rate: rate, Burst: 10, Status: 429})
			},
			"haproxy 429": func(t *testing.T) string {
				return gatewaytest.HAProxy(t, addr, gatewaytest.Limit{Rate: rate, Status: 429})
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m := drive(t, start(t), &pace.Adaptive{}, during)
				sent, refused := m.between(settled, during)
				all, allRefused := m.between(0, during)
				t.Logf("%s: %d sent in %v, %d refused; after %v %d sent, %.1f a second, %d refused: %.1f %%",
					name, all, during, allRefused, settled, sent, float64(sent)/(during-settled).Seconds(), refused, 100*float64(refused)/float64(sent))
				assert.LessOrEqual(t, float64(refused), mostRefused*float64(sent), "refused")
				assert.GreaterOrEqual(t, float64(sent-refused), least*rate*(during-settled).Seconds(), "admitted")
				for second := time.Duration(0); second < during; second += time.Second {
					sent, _ := m.between(second, second+time.Second)
					assert.LessOrEqual(t, sent, 2*rate+10, "no storm in the second from %v", second)
				}
			})
		}
	})
}

// A gateway passes on what the service says, and the client heeds it: nobody is
// refused twice.
func TestWhatAServiceTellsPassesThroughAGateway(t *testing.T) {
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
		Name: "api", Key: func(*http.Request) string { return "all" },
		Policies: []quota.Policy{{Quota: 20, Window: time.Second}},
	}}})
	require.NoError(t, err)
	service := httptest.NewServer(limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer service.Close()
	url := gatewaytest.Proxy(t, strings.TrimPrefix(service.URL, "http://"))
	during, settled, mostRefused := 4*time.Second, time.Second, 0.33 // still on its way up and down
	if os.Getenv("HEED_LONG") != "" {
		during, settled, mostRefused = 30*time.Second, 10*time.Second, 0.05
	}
	m := drive(t, url, &pace.Adaptive{}, during)
	sent, refused := m.between(settled, during)
	all, allRefused := m.between(0, during)
	t.Logf("%d sent in %v, %d refused; after %v %d sent, %d refused", all, during, allRefused, settled, sent, refused)
	assert.LessOrEqual(t, float64(refused), mostRefused*float64(sent))
	assert.GreaterOrEqual(t, float64(all-allRefused), 0.6*20*during.Seconds(), "admitted")
	assert.LessOrEqual(t, float64(all-allRefused), 20+20*during.Seconds()+1, "admitted by the service")
}
