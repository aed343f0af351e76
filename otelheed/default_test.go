package otelheed_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// A heed.Transport without a Base sends through http.DefaultTransport, inside which it is itself.
func TestOtelhttpAroundHeedMayBeTheDefaultTransport(t *testing.T) {
	var arrived atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1) == 1 {
			w.WriteHeader(503)
		}
	}))
	defer srv.Close()
	l, before := newLab(t), http.DefaultTransport
	http.DefaultTransport = l.otelhttp(&heed.Transport{Retry: heed.RetryPolicy{Backoff: every(0)}})
	defer func() { http.DefaultTransport = before }()
	assert.Equal(t, 200, call(t, &http.Client{}, srv.URL))
	assert.EqualValues(t, 2, arrived.Load())
	assert.Len(t, l.spans.Ended(), 3, "the call, and each attempt")
}
