package clientside_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/serverside/metrics/clientside"
	"github.com/heedhttp/heed/testserver"
)

func open(t *testing.T, o clientside.Options) (*clientside.Metrics, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	m, err := clientside.New(reg, o)
	require.NoError(t, err)
	return m, reg
}

// answer is a Base whose answer depends on the path.
type answer func(path string) (int, error)

func (f answer) RoundTrip(req *http.Request) (*http.Response, error) {
	status, err := f(req.URL.Path)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// shown returns the samples of some metrics, or of all, without buckets and comments.
func shown(t *testing.T, reg *prometheus.Registry, names ...string) string {
	if len(names) == 0 {
		names = []string{"heed_attempts_total", "heed_wait_seconds", "heed_refused_total", "heed_store_failures_total",
			"heed_budget_retries_left"}
	}
	all, err := testutil.GatherAndFormat(reg, expfmt.TypeTextPlain, names...)
	require.NoError(t, err)
	var b strings.Builder
	for line := range strings.Lines(string(all)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestThrottledAndUnavailableAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := open(t, clientside.Options{})
		srv := testserver.New(t,
			testserver.Step{Status: 429, RetryAfter: 10 * time.Second},
			testserver.Step{Status: 503, RetryAfter: 20 * time.Second},
			testserver.Step{Status: 503, RetryAfter: 10 * time.Minute})
		var told []heed.Verdict
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport(), Trace: m.Trace(&heed.Trace{
			Decided: func(_ heed.Attempt, v heed.Verdict, _ time.Duration) { told = append(told, v) }})}}
		for range 2 {
			resp, err := client.Get(srv.URL)
			require.NoError(t, err)
			resp.Body.Close()
		}
		host := strings.TrimPrefix(srv.URL, "http://")
		assert.Equal(t, fmt.Sprintf(`heed_attempts_total{host=%[1]q,outcome="2xx",verdict="final"} 1
heed_attempts_total{host=%[1]q,outcome="429",verdict="again"} 1
heed_attempts_total{host=%[1]q,outcome="503",verdict="again"} 1
heed_attempts_total{host=%[1]q,outcome="503",verdict="wait too long"} 1
`, host), shown(t, reg, "heed_attempts_total"))
		assert.Len(t, told, 4, "the next Trace is called, too")
		waits := shown(t, reg, "heed_wait_seconds")
		assert.Contains(t, waits, fmt.Sprintf("heed_wait_seconds_count{cause=\"hint\",host=%q} 2\n", host))
		assert.NotContains(t, waits, "cool-down", "each wait is counted once, under its cause")
	})
}

func TestHooksAreCountedAndThenCalled(t *testing.T) {
	m, reg := open(t, clientside.Options{})
	var called []string
	trace := m.Trace(&heed.Trace{
		Waited:   func(*http.Request, heed.Cause, time.Duration) { called = append(called, "waited") },
		Decided:  func(heed.Attempt, heed.Verdict, time.Duration) { called = append(called, "decided") },
		Refused:  func(*http.Request, *heed.OverdueError) { called = append(called, "refused") },
		Degraded: func(error) { called = append(called, "degraded") },
	})
	for _, trace := range []*heed.Trace{trace, m.Trace(nil)} {
		req, err := http.NewRequest("GET", "https://user:pass@API.example.com:443/path-s3cr3t?q=query-s3cr3t", nil)
		require.NoError(t, err)
		failed := heed.Attempt{Request: req, Err: errors.New("err-s3cr3t"), Cause: heed.CauseBackoff}
		trace.Waited(req, heed.CauseCoolDown, 2*time.Second)
		trace.Waited(req, heed.CausePace, time.Second)
		trace.Decided(failed, heed.Again, 3*time.Second)
		trace.Waited(req, heed.CauseBackoff, 3*time.Second)
		trace.Decided(failed, heed.OutOfAttempts, 0)
		trace.Refused(req, &heed.OverdueError{Key: "key-s3cr3t", Cause: heed.CausePace})
		trace.Degraded(errors.New("err-s3cr3t"))
	}
	assert.Equal(t, []string{"waited", "waited", "decided", "waited", "decided", "refused", "degraded"}, called)
	assert.Equal(t, `heed_attempts_total{host="api.example.com",outcome="error",verdict="again"} 2
heed_attempts_total{host="api.example.com",outcome="error",verdict="out of attempts"} 2
heed_refused_total{cause="pace",host="api.example.com"} 2
heed_store_failures_total 2
heed_wait_seconds_sum{cause="backoff",host="api.example.com"} 6
heed_wait_seconds_count{cause="backoff",host="api.example.com"} 2
heed_wait_seconds_sum{cause="cool-down",host="api.example.com"} 4
heed_wait_seconds_count{cause="cool-down",host="api.example.com"} 2
heed_wait_seconds_sum{cause="pace",host="api.example.com"} 2
heed_wait_seconds_count{cause="pace",host="api.example.com"} 2
`, shown(t, reg), "and nothing else of a request")
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestHostsBeyondTheLimitAreOther(t *testing.T) {
	m, reg := open(t, clientside.Options{Hosts: 5})
	base := answer(func(string) (int, error) { return 200, nil })
	client := &http.Client{Transport: &heed.Transport{Trace: m.Trace(nil), Base: base}}
	const clients, each = 8, 250
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for j := range each {
				resp, err := client.Get(fmt.Sprintf("http://host-%d-%d.example/", i, j))
				if assert.NoError(t, err) {
					resp.Body.Close()
				}
			}
		})
	}
	group.Wait()
	lines := strings.Split(strings.TrimSpace(shown(t, reg, "heed_attempts_total")), "\n")
	assert.Len(t, lines, 6, "five hosts, and the others together")
	other := `heed_attempts_total{host="other",outcome="2xx",verdict="final"} `
	assert.Contains(t, lines, other+strconv.Itoa(clients*each-5))
}

func TestEachStatusHasAnOutcome(t *testing.T) {
	for status, want := range map[int]string{
		101: "1xx", 204: "2xx", 304: "3xx", 404: "4xx", 500: "5xx", 599: "5xx",
		429: "429", 503: "503", 600: "other", 99: "other", 0: "other",
	} {
		m, reg := open(t, clientside.Options{})
		req, err := http.NewRequest("GET", "http://example.com", nil)
		require.NoError(t, err)
		m.Trace(nil).Decided(heed.Attempt{Request: req, Response: &http.Response{StatusCode: status}}, heed.Final, 0)
		assert.Contains(t, shown(t, reg), fmt.Sprintf("outcome=%q", want), status)
	}
}

func TestASecondNewReturnsTheFirstMetrics(t *testing.T) {
	one, reg := open(t, clientside.Options{})
	two, err := clientside.New(reg, clientside.Options{Hosts: 100})
	require.NoError(t, err)
	assert.Same(t, one, two)
	_, err = clientside.New(reg, clientside.Options{Hosts: 7})
	assert.EqualError(t, err, "clientside: registered before, with other options")
	_, err = clientside.New(nil, clientside.Options{Hosts: -1})
	assert.EqualError(t, err, "clientside: Hosts must not be negative")
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "heed_attempts_total"}))
	_, err = clientside.New(taken, clientside.Options{})
	assert.ErrorContains(t, err, "clientside: register: ")
	unregistered, err := clientside.New(nil, clientside.Options{})
	require.NoError(t, err)
	assert.NoError(t, prometheus.NewRegistry().Register(unregistered))
}
