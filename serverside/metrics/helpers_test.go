package metrics_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics"
)

// A site is a limited server whose metrics can be scraped.
type site struct {
	testing.TB
	reg     *prometheus.Registry
	metrics *metrics.Metrics
	limiter *serverside.Limiter
	handler http.Handler
}

// open starts a site with cfg. Without other options, each decision is a sample.
func open(t testing.TB, cfg serverside.Config, o ...metrics.Options) *site {
	t.Helper()
	o = append(o, metrics.Options{SampleEvery: 1})
	s := &site{TB: t, reg: prometheus.NewPedanticRegistry()}
	var err error
	s.metrics, err = metrics.New(s.reg, o[0])
	require.NoError(t, err)
	s.limiter, err = serverside.New(s.instrumented(cfg))
	require.NoError(t, err)
	s.handler = s.limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return s
}

// instrumented returns cfg with metrics, and without a log unless it has one. Its StoreTimeout is long,
// because on a busy machine even a Store in this process may answer late.
func (s *site) instrumented(cfg serverside.Config) serverside.Config {
	cfg.StoreTimeout = cmp.Or(cfg.StoreTimeout, time.Minute)
	if cfg.Audit == nil {
		cfg.Audit = func(serverside.Event) {}
	}
	return s.metrics.Instrument(cfg)
}

func (s *site) reconfigure(cfg serverside.Config) error {
	return s.limiter.Reconfigure(s.instrumented(cfg))
}

// ask sends n requests, from 192.0.2.1 and with header fields given in pairs, and
// counts the answers by status.
func (s *site) ask(n int, target string, fields ...string) map[int]int {
	return s.from("192.0.2.1", n, target, fields...)
}

func (s *site) from(peer string, n int, target string, fields ...string) map[int]int {
	codes := map[int]int{}
	for range n {
		r, w := httptest.NewRequest("GET", target, nil), httptest.NewRecorder()
		r.RemoteAddr = peer + ":1234"
		for i := 0; i < len(fields); i += 2 {
			r.Header.Add(fields[i], fields[i+1])
		}
		s.handler.ServeHTTP(w, r)
		codes[w.Code]++
	}
	return codes
}

// text returns a scrape.
func (s *site) text() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(s, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

// scrape returns the values of a scrape by series.
func (s *site) scrape() map[string]float64 {
	series := map[string]float64{}
	for line := range strings.Lines(s.text()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[end:]), 64)
		require.NoError(s, err, line)
		series[line[:end]] = value
	}
	return series
}

// of returns the values of one metric by its labels.
func (s *site) of(name string) map[string]float64 {
	series := map[string]float64{}
	for labels, value := range s.scrape() {
		if of, ok := strings.CutPrefix(labels, name); ok && (of == "" || of[0] == '{') {
			series[of] = value
		}
	}
	return series
}

// A switched is a Store that can be turned off.
type switched struct {
	quota.Memory
	off atomic.Bool
}

func (s *switched) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if s.off.Load() {
		return nil, errors.New("dial tcp 10.0.0.7:6379: connection refused")
	}
	return s.Memory.Take(ctx, dst, charges...)
}

var user = serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") })

func rule(name, pattern string, p quota.Policy) serverside.Rule {
	return serverside.Rule{Name: name, Pattern: pattern, Policies: []quota.Policy{p}}
}

func rules(all ...serverside.Rule) serverside.Config { return serverside.Config{Rules: all} }

// logged returns a buffer for the log until t ends.
func logged(t testing.TB) *bytes.Buffer {
	out, before := new(bytes.Buffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(out, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return out
}
