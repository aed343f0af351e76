package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEveryJobIsDoneOnce(t *testing.T) {
	var done [31]atomic.Int64
	out := load{Workers: 7, Jobs: 20, First: 10}.do(t.Context(), func(_ context.Context, job int) (int, error) {
		done[job].Add(1)
		return http.StatusOK, nil
	})
	assert.Zero(t, out)
	for job := range done {
		want := int64(0)
		if job > 10 {
			want = 1
		}
		assert.Equal(t, want, done[job].Load(), job)
	}
}

func TestWorkersWorkAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		load{Workers: 5, Jobs: 20}.do(t.Context(), func(context.Context, int) (int, error) {
			time.Sleep(time.Second)
			return http.StatusOK, nil
		})
		assert.Equal(t, 4*time.Second, time.Since(start))
	})
}

func TestAnOutcomeTellsRefusalsFromFailures(t *testing.T) {
	out := load{Workers: 1, Jobs: 4}.do(t.Context(), func(_ context.Context, job int) (int, error) {
		switch job {
		case 1:
			return http.StatusOK, nil
		case 2:
			return http.StatusTooManyRequests, nil
		case 3:
			return 0, errors.New("first")
		}
		return http.StatusInternalServerError, nil
	})
	assert.Equal(t, outcome{Throttled: 1, Failed: 2, Reason: "first"}, out)
}

func TestSharesAddUpToTheWhole(t *testing.T) {
	whole := load{Workers: 50, Jobs: 200, First: 3}
	for n := 1; n <= 50; n++ {
		sum, next := load{}, whole.First
		for i := range n {
			part := whole.share(i, n)
			assert.Equal(t, next, part.First)
			assert.Positive(t, part.Workers)
			sum.Workers += part.Workers
			sum.Jobs += part.Jobs
			next += part.Jobs
		}
		sum.First = whole.First
		assert.Equal(t, whole, sum)
	}
}

// refusing is a server that refuses everything until tomorrow.
func refusing(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// silent is a server that never answers.
func silent(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(func() {
		srv.CloseClientConnections() // Close waits for them
		srv.Close()
	})
	return srv.URL
}

func TestA429ThatHeedHandsOverIsNoticed(t *testing.T) {
	out := heeded(t.Context(), load{Workers: 1, Jobs: 1}, refusing(t))
	assert.Equal(t, outcome{Throttled: 1}, out)
	assert.ErrorContains(t, result{part: part{name: "heed"}, outcome: out}.fault(), "heed: 1 job was handed a 429")
}

func TestTheNaiveLoopIsStopped(t *testing.T) {
	t.Parallel()
	start := time.Now()
	out := naive(t.Context(), load{Workers: 3, Jobs: 3}, refusing(t), 250*time.Millisecond)
	assert.Less(t, time.Since(start), 5*time.Second)
	assert.Zero(t, out)
}
