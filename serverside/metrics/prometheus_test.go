package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/daemon"
	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A slow is a Store that answers late.
type slow struct {
	switched
	took atomic.Int64
}

func (s *slow) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	time.Sleep(time.Duration(s.took.Load()))
	return s.switched.Take(ctx, dst, charges...)
}

// A watch is a Prometheus that runs.
type watch struct {
	*testing.T
	url      string
	interval time.Duration
	patience time.Duration // how long an alert may take
}

// watchOver starts a Prometheus that scrapes the server at addr. Its rates are over a window.
func watchOver(t *testing.T, addr string, window, interval time.Duration) *watch {
	path, dir := testenv.Program(t, "prometheus"), t.TempDir()
	rules := exported(t, "prometheus", "rules: [{policies: 5/1h}]", export.Options{Window: window})
	config := fmt.Sprintf(`
global: {scrape_interval: %[1]v, scrape_timeout: %[1]v, evaluation_interval: %[1]v}
rule_files: [alerts.yml]
scrape_configs: [{job_name: api, static_configs: [{targets: ["%[2]s"]}]}]
`, interval, addr)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte(rules), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	w := &watch{T: t, interval: interval, patience: 3*window + time.Minute}
	var err error
	for range 5 { // another process may take the port first
		listen := fmt.Sprintf("127.0.0.1:%d", daemon.FreePort(t))
		w.url = "http://" + listen
		cmd := exec.Command(path, "--config.file", filepath.Join(dir, "prometheus.yml"),
			"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", listen)
		var d *daemon.Daemon
		if d, err = daemon.Start(cmd, func(*daemon.Daemon) bool {
			resp, err := http.Get(w.url + "/-/ready")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil && resp.StatusCode == http.StatusOK
		}); err == nil {
			t.Cleanup(d.Kill)
			return w
		}
	}
	require.NoError(t, err)
	return nil
}

// firing returns the alerts that fire.
func (w *watch) firing() (names []string) {
	resp, err := http.Get(w.url + "/api/v1/alerts")
	require.NoError(w, err)
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	require.NoError(w, json.NewDecoder(resp.Body).Decode(&answer))
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// until waits until the alerts that fire are as wanted.
func (w *watch) until(what string, wanted func(firing []string) bool) {
	w.Helper()
	began := time.Now()
	for ; !wanted(w.firing()); time.Sleep(w.interval / 2) {
		require.Less(w, time.Since(began), w.patience, "%s: not in time, firing are %v", what, w.firing())
	}
	w.Logf("%s: after %v", what, time.Since(began).Round(10*time.Millisecond))
}

// A load is a number of clients that send until it ends.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup
}

func startLoad(t *testing.T, url string, clients int, pause time.Duration) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop}
	for range clients {
		l.clients.Go(func() {
			for ctx.Err() == nil {
				if resp, err := http.Get(url); err == nil {
					resp.Body.Close()
				}
				time.Sleep(pause)
			}
		})
	}
	return l
}

func (l *load) end() {
	l.stop()
	l.clients.Wait()
}

// With HEED_TEST=long the durations are those of the file, which takes a quarter of an hour.
// Otherwise most of the time passes before a new Prometheus scrapes at all, five seconds.
func TestAlertsFireInPrometheusAndEnd(t *testing.T) {
	window, interval := time.Second, 100*time.Millisecond
	if testenv.Long() {
		window, interval = 5*time.Minute, 5*time.Second
	}
	store := &slow{}
	s := open(t, serverside.Config{
		Rules: []serverside.Rule{rule("api", "/v1/", quota.PerHour(5))}, Store: store, StoreTimeout: 10 * time.Second,
	})
	mux := http.NewServeMux()
	mux.Handle("/v1/", s.handler)
	mux.Handle("/metrics", promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{}))
	server := httptest.NewServer(mux)
	defer server.Close()
	s.ask(1, "/v1/x")
	w := watchOver(t, server.Listener.Addr().String(), window, interval)

	store.took.Store(int64(150 * time.Millisecond))
	flood := startLoad(t, server.URL+"/v1/x", 20, 0)
	w.until("denials and latency", func(firing []string) bool {
		return slices.Contains(firing, "HighRateLimitViolations") && slices.Contains(firing, "RateLimitHighLatency")
	})
	flood.end()
	store.took.Store(0)
	store.off.Store(true)
	s.ask(1, "/v1/x")
	w.until("the store", func(firing []string) bool { return slices.Contains(firing, "RateLimitRedisDown") })

	store.off.Store(false)
	calm := startLoad(t, server.URL+"/v1/x", 1, time.Second)
	defer calm.end()
	w.until("all is well", func(firing []string) bool {
		return !slices.ContainsFunc(firing, func(name string) bool {
			return name == "HighRateLimitViolations" || name == "RateLimitHighLatency" || name == "RateLimitRedisDown"
		})
	})
}
