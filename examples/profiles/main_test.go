package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestEachServerServesAllThatItsClientAsksFor(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	for name, shown := range shows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w screen
			require.NoError(t, run(t.Context(), &w, shown, "localhost:0", true), w.String())
			assert.Contains(t, w.String(), fmt.Sprintf("%d requests served, ", shown.requests))
			assert.Contains(t, w.String(), "429, Retry-After: ")
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
	require.Eventually(t, func() bool { return regexp.MustCompile("Ctrl-C").MatchString(w.String()) }, 30*time.Second, 5*time.Millisecond)
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
	shown := shows["forja"]
	shown.requests = 1
	var w screen
	assert.Error(t, run(t.Context(), &w, shown, "localhost:0", true))
	assert.Contains(t, w.String(), "429, Retry-After: 1.")
	assert.Contains(t, w.String(), "0 requests served")
	t.Setenv("RATE_LIMIT_FAIL_MODE", "ajar")
	assert.ErrorContains(t, run(t.Context(), &w, shown, "localhost:0", true), "RATE_LIMIT_FAIL_MODE")
}

func get(t *testing.T, url string) (status int, body string) {
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}
