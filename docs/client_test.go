package docs_test

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// answer is the function of client.md: it tells a caller of our own when to come back.
func answer(w http.ResponseWriter, err error) {
	var overdue *heed.OverdueError
	if errors.As(err, &overdue) {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(overdue.Wait.Seconds()))))
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "bad gateway", http.StatusBadGateway)
}

func TestAHandlerPassesTheWaitOn(t *testing.T) {
	for _, c := range []struct {
		err        error
		status     int
		retryAfter string
	}{
		{&heed.OverdueError{Wait: 1500 * time.Millisecond}, 503, "2"},
		{errors.New("connection refused"), 502, ""},
	} {
		w := httptest.NewRecorder()
		answer(w, c.err)
		assert.Equal(t, c.status, w.Code)
		assert.Equal(t, c.retryAfter, w.Header().Get("Retry-After"))
	}
}
