package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/examples/internal/stage"
)

// refusing is a server that refuses everything until tomorrow.
func refusing(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestA429ThatHeedHandsOverIsNoticed(t *testing.T) {
	out := heeded(t.Context(), stage.Load{Workers: 1, Jobs: 1}, refusing(t))
	assert.Equal(t, stage.Outcome{Throttled: 1}, out)
	assert.ErrorContains(t, stage.Result{Part: stage.Part{Name: "heed"}, Outcome: out}.Fault(), "heed: 1 job was handed a 429")
}

func TestTheNaiveLoopIsStopped(t *testing.T) {
	t.Parallel()
	start := time.Now()
	out := naive(t.Context(), stage.Load{Workers: 3, Jobs: 3}, refusing(t), 250*time.Millisecond)
	assert.Less(t, time.Since(start), time.Minute)
	assert.Zero(t, out)
}
