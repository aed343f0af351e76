//go:build unix

package benchmarks_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/serverside"
)

// These benchmarks measure a whole server with wrk, which sends requests as fast as they are
// answered, over 64 connections, from the same machine.

func BenchmarkWrk(b *testing.B) { flood(b, limiters...) }

// Only denials have fields, and there are none.
func BenchmarkWrkDenialOnly(b *testing.B) {
	flood(b, unlimited, limiter{"heed", limitedBy(serverside.Config{Rules: rules("", "all"), FieldsOnDenialOnly: true})})
}

// Five fields cost net/http time in any case. So the other row is a handler that always
// writes the same five.
func BenchmarkWrkByHand(b *testing.B) { flood(b, limiter{"bare", byHand}, limiters[1]) }

func byHand(tb testing.TB, h http.Handler) http.Handler {
	once, req := httptest.NewRecorder(), request(tb, "GET", "http://example.com/", nil)
	limiters[1].wrap(tb, nothing).ServeHTTP(once, req)
	fields := once.Header()
	require.Len(tb, fields, 5)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), fields)
		h.ServeHTTP(w, r)
	})
}

// flood measures each handler for a second.
func flood(b *testing.B, all ...limiter) {
	wrk := testenv.Program(b, "wrk")
	for _, l := range all {
		b.Run(l.name, func(b *testing.B) {
			server := httptest.NewServer(l.wrap(b, http.HandlerFunc(hello)))
			defer server.Close()
			before := processorTime(b)
			s := through(b, wrk, server.URL)
			b.ReportMetric(1e9/s.rate, "ns/op")
			b.ReportMetric(100*s.denied/s.requests, "wrong-%")
			b.ReportMetric(float64(processorTime(b)-before)/s.requests, "server-ns")
		})
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") }

var (
	wrkRate   = regexp.MustCompile(`Requests/sec: +([0-9.]+)`)
	wrkAll    = regexp.MustCompile(`([0-9]+) requests in`)
	wrkDenied = regexp.MustCompile(`Non-2xx or 3xx responses: ([0-9]+)`)
)

// A storm is what wrk reports.
type storm struct {
	rate     float64 // responses a second
	requests float64
	denied   float64 // wrongly: the limit is far away
}

func through(b *testing.B, wrk, url string) storm {
	out, err := exec.Command(wrk, "-t1", "-c64", "-d1s", url).CombinedOutput()
	require.NoError(b, err, string(out))
	require.NotContains(b, string(out), "Socket errors")
	number := func(of *regexp.Regexp) (value float64) {
		if found := of.FindSubmatch(out); found != nil {
			value, err = strconv.ParseFloat(string(found[1]), 64)
			require.NoError(b, err)
		}
		return value
	}
	s := storm{number(wrkRate), number(wrkAll), number(wrkDenied)}
	require.NotZero(b, s.requests, string(out))
	return s
}
