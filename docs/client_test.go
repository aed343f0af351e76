package docs_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/testserver"
)

// The functions of client.md.

// comeBack returns how long the server we call asks us to wait, if it limits us.
func comeBack(resp *http.Response, err error) (wait time.Duration, limited bool) {
	var overdue *heed.OverdueError
	switch {
	case errors.As(err, &overdue):
		return overdue.Wait, true
	case errors.Is(err, pace.ErrQueueFull):
		return time.Second, true
	case err == nil && resp.StatusCode == http.StatusTooManyRequests:
		wait, _ := heed.RetryAfter(resp, time.Now())
		return max(wait, time.Second), true
	}
	return 0, false
}

// answer tells a caller of our own what became of our call.
func answer(w http.ResponseWriter, resp *http.Response, err error) {
	if wait, limited := comeBack(resp, err); limited {
		if resp != nil {
			resp.Body.Close()
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		http.Error(w, "bad gateway", http.StatusBadGateway)
	}
}

func TestAHandlerPassesTheWaitOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 90 * time.Second}, testserver.Step{Drop: true})
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		answered := func() (status int, retryAfter string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := client.Do(req)
			w := httptest.NewRecorder()
			if answer(w, resp, err); err == nil {
				resp.Body.Close()
			}
			return w.Code, w.Header().Get("Retry-After")
		}
		for range 2 { // the first gets the 429, the second an error
			status, retryAfter := answered()
			assert.Equal(t, 503, status)
			assert.Equal(t, "90", retryAfter)
		}
		time.Sleep(2 * time.Minute)
		status, retryAfter := answered()
		assert.Equal(t, 502, status)
		assert.Empty(t, retryAfter)
		status, retryAfter = answered()
		assert.Equal(t, 200, status)
		assert.Empty(t, retryAfter)
	})
	wait, limited := comeBack(nil, pace.ErrQueueFull)
	assert.True(t, limited)
	assert.Positive(t, wait)
}
