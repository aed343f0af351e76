package pace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A meter is a base that records when each request was answered, and whether it was
// refused.
type meter struct {
	base  http.RoundTripper
	start time.Time

	mu      sync.Mutex
	answers []answer      // guarded by mu
	first   time.Duration // when the first request was refused, or 0; guarded by mu

	refused func() // called after a refusal
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
	refused := err == nil && resp.StatusCode >= 400 || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	m.answers = append(m.answers, answer{sent, refused})
	if refused && m.first == 0 {
		m.first = time.Since(m.start)
		m.refused()
	}
	return resp, err
}

// between counts the requests sent between two times.
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

// drive has workers send requests one after the other for some time.
func drive(t *testing.T, url string, pacer heed.Pacer, during time.Duration) *meter {
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	m := &meter{start: time.Now(), refused: func() {}}
	m.drive(ctx, t, url, pacer)
	return m
}

// driveOn is drive, for some time after the first refusal, which may be late on a busy
// machine.
func driveOn(t *testing.T, url string, pacer heed.Pacer, during time.Duration) *meter {
	ctx, cancel := context.WithTimeout(t.Context(), during+time.Minute)
	defer cancel()
	m := &meter{start: time.Now(), refused: func() { time.AfterFunc(during, cancel) }}
	m.drive(ctx, t, url, pacer)
	return m
}

func (m *meter) drive(ctx context.Context, t *testing.T, url string, pacer heed.Pacer) {
	base := &http.Transport{MaxIdleConnsPerHost: 16}
	defer base.CloseIdleConnections()
	m.base = base
	client := &http.Client{Transport: &heed.Transport{Base: m, Pacer: pacer}}
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
}

// Gateways refuse with a status alone. 16 workers find the rate: some requests are
// refused, and they continue. The -long form measures how well they keep the rate.
func TestAdaptiveFindsTheRateOfRealGateways(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	addr := strings.TrimPrefix(service.URL, "http://")
	c := course{rate: 50, during: 40 * time.Second, settled: 10 * time.Second, mostRefused: 0.05, least: 0.6}
	t.Run("group", func(t *testing.T) {
		for name, test := range map[string]struct {
			start   func(testing.TB, string, gatewaytest.Limit) string
			status  int
			refused func(heed.Attempt) bool
		}{
			"nginx 503":      {gatewaytest.Nginx, 503, pace.Refusals(false, 503)},
			"nginx 429":      {gatewaytest.Nginx, 429, nil},
			"haproxy 429":    {gatewaytest.HAProxy, 429, nil},
			"haproxy reject": {haproxyThat("reject"), 0, pace.Refusals(true)},
			"haproxy tarpit": {haproxyThat("tarpit"), 500, pace.Refusals(false, 500)},
			"varnish 429":    {gatewaytest.Varnish, 429, nil},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				url := test.start(t, addr, gatewaytest.Limit{Rate: c.rate, Burst: 10, Status: test.status})
				if !testenv.Long() || name == "haproxy tarpit" { // a refusal that arrives a second late
					m := driveOn(t, url, &pace.Adaptive{Refused: test.refused}, 2*time.Second)
					assert.NotZero(t, m.first, "nothing was refused: the rate was not found")
					sent, refused := m.between(m.first, time.Hour)
					assert.Less(t, refused, sent, "some are admitted again")
					return
				}
				var faults []string
				for range 3 { // a stalled machine makes a client late, but not every time
					if faults = c.faults(t, driveOn(t, url, &pace.Adaptive{Refused: test.refused}, c.during)); len(faults) == 0 {
						return
					}
				}
				assert.Empty(t, faults)
			})
		}
	})
}

func haproxyThat(action string) func(testing.TB, string, gatewaytest.Limit) string {
	return func(t testing.TB, addr string, l gatewaytest.Limit) string {
		return gatewaytest.HAProxyThat(t, addr, l, action)
	}
}

// A course is what a client of a gateway must achieve.
type course struct {
	rate            int           // of the gateway, per second
	during, settled time.Duration // the length of the run, and when the bounds start, since the first refusal
	mostRefused     float64       // the highest part of refused requests
	least           float64       // the lowest part of the rate to use
}

// faults returns how m fell short.
func (c course) faults(t *testing.T, m *meter) (all []string) {
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	end := m.first + c.during
	sent, refused := m.between(m.first+c.settled, end)
	total, allRefused := m.between(0, end)
	t.Logf(
		"%d sent in %v, the first refused after %v, %d in all; then, after %v, %d sent, %.1f a second, %d "+
			"refused: %.1f %%",
		total, end, m.first,
		allRefused, c.settled, sent,
		float64(sent)/(c.during-c.settled).Seconds(), refused, 100*float64(refused)/float64(sent))
	fault(m.first == 0, "nothing was refused: the rate was not found")
	fault(float64(refused) > c.mostRefused*float64(sent), "%d of %d were refused", refused, sent)
	fault(
		float64(sent-refused) < c.least*float64(c.rate)*(c.during-c.settled).Seconds(), "%d were admitted",
		sent-refused,
	)
	for second := time.Duration(0); second < end; second += time.Second {
		sent, _ := m.between(second, second+time.Second)
		fault(sent > 2*c.rate+10, "%d were sent in the second from %v: a storm", sent, second)
	}
	return all
}

// A gateway passes the service's fields on, and the client follows them: no request is
// refused twice. The -long form measures how much of the quota is used.
func TestAServicesFieldsPassThroughAGateway(t *testing.T) {
	during := time.Second
	if testenv.Long() {
		during = 30 * time.Second
	}
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{
		{
			Name: "api", Pattern: "/api", Key: serverside.KeyFunc(func(*http.Request) string { return "all" }),
			Policies: []quota.Policy{{Quota: 20, Window: time.Second}},
		},
		{
			Name: "once", Pattern: "/once", Key: serverside.KeyFunc(func(*http.Request) string { return "all" }),
			Policies: []quota.Policy{{Quota: 1, Window: time.Hour}},
		},
	}})
	require.NoError(t, err)
	service := httptest.NewServer(limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer service.Close()
	url := gatewaytest.Proxy(t, strings.TrimPrefix(service.URL, "http://"))

	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		resp, err := http.Get(url + "/once")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode)
		assert.Equal(t, status == http.StatusTooManyRequests, resp.Header.Get("Retry-After") != "")
	}

	start := time.Now()
	m := drive(t, url+"/api", &pace.Adaptive{}, during)
	all, allRefused := m.between(0, time.Hour)
	assert.LessOrEqual(t, float64(all-allRefused), 20+20*time.Since(start).Seconds()+1, "the service admits its limit")
	assert.Less(t, allRefused, all)
	if !testenv.Long() {
		return
	}
	const settled = 10 * time.Second
	sent, refused := m.between(settled, during)
	t.Logf("%d sent in %v, %d refused; after %v %d sent, %d refused", all, during, allRefused, settled, sent, refused)
	assert.LessOrEqual(t, float64(refused), 0.05*float64(sent))
	assert.GreaterOrEqual(t, float64(all-allRefused), 0.6*20*during.Seconds(), "enough is admitted")
}
