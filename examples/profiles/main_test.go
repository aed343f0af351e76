package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
)

// screen is what the program has written.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// An inProcess calls a handler as a server would, without a connection.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1234"
	rec := httptest.NewRecorder()
	p.handler.ServeHTTP(rec, served)
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

// performed is perform without a network, for a bubble, in which requests take no time.
func (s show) performed(t *testing.T, w io.Writer) error {
	handler, err := serve(s)
	require.NoError(t, err)
	return s.perform(t.Context(), w, inProcess{handler}, "http://localhost")
}

func TestEachServerServesAllThatItsClientAsksFor(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	for name, shown := range shows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w screen
				require.NoError(t, shown.performed(t, &w), w.String())
				assert.Contains(t, w.String(), fmt.Sprintf("%d requests served, ", shown.requests))
				assert.Contains(t, w.String(), "429, Retry-After: ")
				assert.Contains(t, w.String(), ", 0 lost.")
			})
		})
	}
}

// The same over a network, which may be too slow for a limit to be met.
func TestEachServerServesItsClientOverANetwork(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	for name, shown := range shows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !testenv.Long() {
				shown.requests = 20
			}
			var w screen
			require.NoError(t, run(t.Context(), &w, shown, "localhost:0", true), w.String())
			assert.Contains(t, w.String(), fmt.Sprintf("%d requests served, ", shown.requests))
			assert.Contains(t, w.String(), ", 0 lost.")
		})
	}
}

func TestItServesOnAndHasAPage(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	shown := shows["forge"]
	shown.requests = 1
	var w screen
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &w, shown, "localhost:0", false) }()
	require.Eventually(t, func() bool { return regexp.MustCompile("Ctrl-C").MatchString(w.String()) }, time.Minute,
		5*time.Millisecond)
	url := regexp.MustCompile(`http://[\d.:]+`).FindString(w.String())
	for range 5 {
		status, _ := get(t, url+"/login")
		assert.Equal(t, 401, status)
	}
	status, body := get(t, url+"/login")
	assert.Equal(t, 429, status)
	assert.Contains(t, body, `"rate_limited"`)
	status, body = get(t, url+"/limits/")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "<html")
	stop()
	assert.NoError(t, <-ended)
}

func TestWithAStoreThatIsAwayItFailsAsItIsToldTo(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	t.Setenv("RATE_LIMIT_FAIL_MODE", "closed")
	handler, err := serve(shows["forja"])
	require.NoError(t, err)
	resp, err := inProcess{handler}.RoundTrip(httptest.NewRequest("GET", "http://localhost/x", nil))
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	t.Setenv("RATE_LIMIT_FAIL_MODE", "ajar")
	var w screen
	assert.ErrorContains(t, run(t.Context(), &w, shows["forja"], "localhost:0", true), "RATE_LIMIT_FAIL_MODE")
}

func TestWhatIsNotServedIsAnError(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	shown := shows["forge"]
	shown.requests, shown.token = 3, "wrong"
	var w screen
	assert.EqualError(t, run(t.Context(), &w, shown, "localhost:0", true), "not all was served")
	assert.Contains(t, w.String(), "0 requests served")
	assert.Contains(t, w.String(), ", 3 lost.")
}

// A client that is refused each time gives up in the end.
func TestWhatIsRefusedEachTimeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w screen
		no := inProcess{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		})}
		shown := shows["forja"]
		shown.requests = 1
		assert.EqualError(t, shown.perform(t.Context(), &w, no, "http://localhost"), "not all was served")
		assert.Contains(t, w.String(), "429, Retry-After: 1. All its requests wait for at least ")
		assert.Contains(t, w.String(), "429, Retry-After: 1. It is handed to the caller: ")
		assert.Contains(t, w.String(), "0 requests served")
	})
}

func get(t *testing.T, url string) (status int, body string) {
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}
