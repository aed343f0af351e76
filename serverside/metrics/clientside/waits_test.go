package clientside_test

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/serverside/metrics/clientside"
)

// A stage is a Transport whose requests are measured from outside: waited is the time that
// they took, without that of the attempts.
type stage struct {
	*testing.T
	transport *heed.Transport
	reg       *prometheus.Registry
	answers   []string // the next ones: a status, or a status and a Retry-After
	waited    atomic.Int64

	mu sync.Mutex // guards answers
}

func newStage(t *testing.T, transport *heed.Transport, answers ...string) *stage {
	m, reg := open(t, clientside.Options{})
	s := &stage{T: t, transport: transport, reg: reg, answers: answers}
	transport.Base, transport.Trace = s, m.Trace(nil)
	if transport.Retry.Backoff == nil {
		transport.Retry.Backoff = func(heed.Attempt) time.Duration { return 2 * time.Second }
	}
	return s
}

// RoundTrip is an attempt of 100 ms. After the last answer it is 200.
func (s *stage) RoundTrip(req *http.Request) (*http.Response, error) {
	const took = 100 * time.Millisecond
	s.mu.Lock()
	answer := "200"
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	time.Sleep(took)
	s.waited.Add(-int64(took))
	code, after, _ := strings.Cut(answer, " ")
	status, err := strconv.Atoi(code)
	require.NoError(s, err)
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}
	if after != "" {
		resp.Header.Set("Retry-After", after)
	}
	return resp, nil
}

// get sends a request. It may fail.
func (s *stage) get() { s.getWith(s.Context()) }

func (s *stage) getWith(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.example.com/", nil)
	require.NoError(s, err)
	start := time.Now()
	resp, err := s.transport.RoundTrip(req)
	s.waited.Add(int64(time.Since(start)))
	if err == nil {
		resp.Body.Close()
	}
}

// together sends several requests at once.
func (s *stage) together(n int) {
	var group sync.WaitGroup
	for range n {
		group.Go(s.get)
	}
	group.Wait()
}

// oneAfterAnother sends several requests, one a second.
func (s *stage) oneAfterAnother(n int) {
	var group sync.WaitGroup
	for range n {
		group.Go(s.get)
		time.Sleep(time.Second)
	}
	group.Wait()
}

var waitLine = regexp.MustCompile(`heed_wait_seconds_(sum|count){cause="([^"]+)",host="api.example.com"} (\S+)`)

// counted returns what heed_wait_seconds has: the number of waits of each cause, and the sum.
func (s *stage) counted() (count map[string]int, seconds float64) {
	count = map[string]int{}
	for _, m := range waitLine.FindAllStringSubmatch(shown(s.T, s.reg, "heed_wait_seconds"), -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		require.NoError(s, err)
		if m[1] == "sum" {
			seconds += value
		} else {
			count[m[2]] = int(value)
		}
	}
	return count, seconds
}

func TestWaitsAddUpToTheTimeThatCallsWaited(t *testing.T) {
	for name, c := range map[string]struct {
		transport *heed.Transport
		answers   []string
		run       func(s *stage)
		want      map[string]int
	}{
		"nothing": {&heed.Transport{}, nil, (*stage).get, map[string]int{}},
		"backoff": {&heed.Transport{}, []string{"503", "503"}, (*stage).get, map[string]int{"backoff": 2}},
		"hint":    {&heed.Transport{}, []string{"429 10"}, (*stage).get, map[string]int{"hint": 1}},
		"hint without a cool-down": {
			&heed.Transport{Board: heed.NoBoard}, []string{"429 10"}, (*stage).get, map[string]int{"hint": 1}},
		"hint of a 503": {&heed.Transport{}, []string{"503 10"}, (*stage).get, map[string]int{"hint": 1}},
		"hints":         {&heed.Transport{}, []string{"429 10", "429 20"}, (*stage).get, map[string]int{"hint": 2}},
		"another's cool-down": {&heed.Transport{}, []string{"429 10"}, func(s *stage) {
			s.oneAfterAnother(2)
		}, map[string]int{"hint": 1, "cool-down": 1}},
		"another's cool-down begins during backoff": {&heed.Transport{}, []string{"503", "429 10"}, func(s *stage) {
			s.oneAfterAnother(2)
		}, map[string]int{"hint": 1, "backoff": 1, "cool-down": 1}},
		"one hint for many": {&heed.Transport{}, []string{"429 10", "429 10", "429 10"}, func(s *stage) {
			s.together(3)
		}, map[string]int{"hint": 3}},
		"pace": {&heed.Transport{Pacer: pace.PerHost(1, 1)}, nil, func(s *stage) {
			s.together(4)
		}, map[string]int{"pace": 3}},
		"pace after a hint": {&heed.Transport{Pacer: pace.PerHost(.1, 1)}, []string{"429 5"}, (*stage).get,
			map[string]int{"hint": 1, "pace": 1}},
		"pace after backoff": {&heed.Transport{Pacer: pace.PerHost(.1, 1)}, []string{"503"}, (*stage).get,
			map[string]int{"backoff": 1, "pace": 1}},
		"cool-down after pace": {&heed.Transport{Pacer: pace.PerHost(5, 1)}, []string{"429 10"}, func(s *stage) {
			s.together(2)
		}, map[string]int{"hint": 1, "pace": 1, "cool-down": 1}},
		"the caller's deadline is before the end": {&heed.Transport{}, []string{"429 10"}, func(s *stage) {
			ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
			defer cancel()
			s.getWith(ctx)
		}, map[string]int{}},
		"a wait that becomes too long": {&heed.Transport{}, []string{"503", "429 600"}, func(s *stage) {
			s.oneAfterAnother(2)
		}, map[string]int{"backoff": 1}},
		"pace, then a cool-down that is too long": {&heed.Transport{Pacer: pace.PerHost(1, 1)}, []string{"429 600"},
			func(s *stage) { s.together(2) }, map[string]int{"pace": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, c.transport, c.answers...)
				c.run(s)
				count, seconds := s.counted()
				assert.Equal(t, c.want, count)
				assert.InDelta(t, time.Duration(s.waited.Load()).Seconds(), seconds, 1e-6)
			})
		})
	}
}

func TestWaitsOfManyCallsAddUpToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, &heed.Transport{Pacer: pace.PerHost(20, 5), Retry: heed.RetryPolicy{MaxAttempts: 10}},
			"503", "503", "429 10", "503", "429 20", "503 5", "503", "429 3")
		s.together(50)
		count, seconds := s.counted()
		assert.Contains(t, count, "cool-down")
		assert.Contains(t, count, "pace")
		assert.InDelta(t, time.Duration(s.waited.Load()).Seconds(), seconds, 1e-6)
	})
}

func TestAWaitThatTheCallerGivesUpCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, &heed.Transport{}, "429 30")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		s.getWith(ctx)
		count, seconds := s.counted()
		assert.Equal(t, map[string]int{"hint": 1}, count)
		assert.InDelta(t, 4.9, seconds, 1e-6)
	})
}
