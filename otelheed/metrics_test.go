package otelheed_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	apimetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/otelheed"
	"github.com/heedhttp/heed/testserver"
)

func TestEachAttemptAndEachWaitIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, script...)
		call(t, l.client(&heed.Transport{Base: srv.Transport(), Retry: patient}), srv.URL)
		assert.Equal(t, `
attempts {attempt} [again, 429, server.test, 80] 1
attempts {attempt} [again, 503, server.test, 80] 1
attempts {attempt} [final, 200, server.test, 80] 1
budget.balance {retry} [server.test, 80] 4.1
retries {retry} [server.test, 80] 2
wait.duration s [backoff, server.test, 80] 1 of 2
wait.duration s [hint, server.test, 80] 1 of 3 and jitter
`, withJitter.ReplaceAllString(l.metrics(), "${1}3 and jitter"))
	})
}

// Nobody knows how long an outage takes, so its wait is told when it is over.
func TestAWaitForAHostThatIsDownIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv, down := newLab(t), testserver.New(t), new(atomic.Bool)
		client := l.client(&heed.Transport{Base: base(func(req *http.Request) (*http.Response, error) {
			if down.Load() {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			return srv.Transport().RoundTrip(req)
		})})
		for range 3 {
			call(t, client, srv.URL)
		}
		down.Store(true)
		once := heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 1})
		for range 5 {
			req, err := http.NewRequestWithContext(once, "GET", srv.URL, nil)
			require.NoError(t, err)
			_, err = client.Do(req)
			require.Error(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { down.Store(false) })
		call(t, client, srv.URL)
		var waited time.Duration
		for _, span := range l.spans.Ended() {
			for _, e := range span.Events() {
				if e.Name != "heed.wait" {
					continue
				}
				assert.Equal(t, "outage", e.Attributes[0].Value.AsString())
				assert.InDelta(t, waited, e.Time.Sub(began), float64(time.Millisecond), "the next wait begins when the last has ended")
				waited += time.Duration(e.Attributes[1].Value.AsFloat64() * float64(time.Second))
			}
		}
		assert.InDelta(t, time.Since(began), waited, float64(time.Millisecond))
		assert.Contains(t, l.metrics(), "wait.duration s [outage, server.test, 80]")
	})
}

// withJitter matches a wait of three seconds and up to 30 % of jitter.
var withJitter = regexp.MustCompile(`(\[hint.* of )3(\.[0-9]+)?`)

func TestMetricsHaveNamesUnitsAndBoundedAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, srv := newLab(t), testserver.New(t, testserver.Step{Status: 503}, testserver.Step{Status: 799})
		o := l.options()
		o.Attributes = []attribute.KeyValue{attribute.String("peer.service", "billing")}
		client := &http.Client{Transport: otelheed.NewTransport(&heed.Transport{Base: srv.Transport(), Retry: patient}, o)}
		call(t, client, srv.URL+"/path")
		var all metricdata.ResourceMetrics
		require.NoError(t, l.reader.Collect(t.Context(), &all))
		runtime.KeepAlive(client)
		require.Len(t, all.ScopeMetrics, 1)
		assert.Equal(t, "github.com/heedhttp/heed/otelheed", all.ScopeMetrics[0].Scope.Name)
		keys := map[string]string{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			var sets []attribute.Set
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				assert.True(t, data.IsMonotonic)
				for _, p := range data.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				sets = append(sets, data.DataPoints[0].Attributes)
			case metricdata.Gauge[float64]:
				sets = append(sets, data.DataPoints[0].Attributes)
			}
			for _, s := range sets {
				var names []string
				for _, a := range s.ToSlice() {
					names = append(names, string(a.Key))
				}
				keys[strings.Join(names, " ")] += " " + m.Name
			}
		}
		server := "peer.service server.address server.port"
		assert.Equal(t, map[string]string{
			"heed.verdict http.response.status_code " + server: " heed.client.attempts",
			"error.type heed.verdict " + server:                " heed.client.attempts",
			server:                                             " heed.client.retries heed.client.budget.balance",
			"heed.wait.cause " + server:                        " heed.client.wait.duration",
		}, keys, "a status that is none is no status")
	})
}

func TestManyServersAreCountedAsOneBeyondTheBound(t *testing.T) {
	l := newLab(t)
	o := l.options()
	o.Servers = 5
	client := &http.Client{Transport: otelheed.NewTransport(&heed.Transport{Base: always(200)}, o)}
	const clients, each = 8, 100
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for j := range each {
				call(t, client, fmt.Sprintf("http://host-%d-%d.example/", i, j))
			}
		})
	}
	group.Wait()
	all := l.metrics()
	assert.Equal(t, 6, strings.Count(all, "\nattempts "), all)
	assert.Contains(t, all, fmt.Sprintf("\nattempts {attempt} [final, 200, _OTHER] %d\n", clients*each-5))
	assert.Equal(t, 5, strings.Count(all, "\nbudget.balance "), all)
	runtime.KeepAlive(client)
}

// Calls that share a context and a Transport: each span has its own events, and nothing is
// counted twice or lost.
func TestManyCallsAtOnceAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var mu sync.Mutex
		seen := map[string]int{}
		client := l.client(&heed.Transport{
			Board: heed.NoBoard, Budget: heed.Unlimited, Retry: heed.RetryPolicy{Backoff: every(time.Second)},
			Base: base(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if seen[req.URL.Path]++; seen[req.URL.Path] <= 2 {
					return answer(req, 503), nil
				}
				return answer(req, 200), nil
			}),
		})
		ctx, parent := l.traces.Tracer("app").Start(t.Context(), "app")
		const calls = 300
		var group sync.WaitGroup
		for i := range calls {
			group.Go(func() {
				req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://example.com/%d", i), nil)
				if !assert.NoError(t, err) {
					return
				}
				resp, err := client.Do(req)
				if assert.NoError(t, err) {
					resp.Body.Close()
				}
			})
		}
		group.Wait()
		parent.End()
		one := `
  heed GET internal 0s-2s [attempts=3, final, 200]
  - heed.verdict 0s [attempt=1, again, 503]
  - heed.wait 0s [cause=backoff, duration=1]
  - heed.verdict 1s [attempt=2, again, 503]
  - heed.wait 1s [cause=backoff, duration=1]
    GET client 0s-0s [503, 503] Error
    GET client 1s-1s [resend_count=1, 503, 503] Error
    GET client 2s-2s [resend_count=2, 200]`
		assert.Equal(t, "\napp internal 0s-2s"+strings.Repeat(one, calls)+"\n", l.tree())
		assert.Equal(t, fmt.Sprintf(`
attempts {attempt} [again, 503, example.com, 80] %d
attempts {attempt} [final, 200, example.com, 80] %d
retries {retry} [example.com, 80] %d
wait.duration s [backoff, example.com, 80] %d of %d
`, 2*calls, calls, 2*calls, 2*calls, 2*calls), l.metrics())
	})
}

func TestABudgetIsNotReadOnceItsTransportIsGone(t *testing.T) {
	l := newLab(t)
	client := &http.Client{Transport: otelheed.NewTransport(&heed.Transport{Base: always(200)}, l.options())}
	call(t, client, "http://example.com")
	assert.Contains(t, l.metrics(), "budget.balance")
	runtime.KeepAlive(client)
	require.Eventually(t, func() bool {
		runtime.GC()
		return !strings.Contains(l.metrics(), "budget.balance")
	}, time.Minute, time.Millisecond)
}

// halfway makes histograms, and nothing else.
type halfway struct {
	noop.MeterProvider
	meter
}

type meter struct{ noop.Meter }

var errMade = errors.New("it cannot be made")

func (h halfway) Meter(string, ...apimetric.MeterOption) apimetric.Meter { return h.meter }

func (meter) Int64Counter(string, ...apimetric.Int64CounterOption) (apimetric.Int64Counter, error) {
	return nil, errMade
}

func (meter) RegisterCallback(apimetric.Callback, ...apimetric.Observable) (apimetric.Registration, error) {
	return nil, errMade
}

func TestMetricsThatCannotBeMadeAreReportedAndLeftOut(t *testing.T) {
	var errs atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if errors.Is(err, errMade) {
			errs.Add(1)
		}
	}))
	l := newLab(t)
	o := l.options()
	o.MeterProvider = halfway{}
	client := &http.Client{Transport: otelheed.NewTransport(&heed.Transport{Base: always(200)}, o)}
	assert.Equal(t, 200, call(t, client, "http://example.com"))
	assert.Equal(t, int64(5), errs.Load(), "four counters and the registration")
}
