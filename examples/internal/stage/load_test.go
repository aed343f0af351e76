package stage

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
	out := Load{Workers: 7, Jobs: 20, First: 10}.Do(t.Context(), func(_ context.Context, job int) (int, error) {
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
		Load{Workers: 5, Jobs: 20}.Do(t.Context(), func(context.Context, int) (int, error) {
			time.Sleep(time.Second)
			return http.StatusOK, nil
		})
		assert.Equal(t, 4*time.Second, time.Since(start))
	})
}

func TestNoJobIsBegunTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, begun := time.Now(), atomic.Int64{}
		Load{Workers: 5, Jobs: 1_000_000, For: 3500 * time.Millisecond}.Do(t.Context(), func(context.Context, int) (int, error) {
			begun.Add(1)
			time.Sleep(time.Second)
			return http.StatusOK, nil
		})
		assert.Equal(t, 4*time.Second, time.Since(start), "and those that were begun are done")
		assert.EqualValues(t, 20, begun.Load())
	})
}

func TestAnOutcomeTellsRefusalsFromFailures(t *testing.T) {
	out := Load{Workers: 1, Jobs: 4}.Do(t.Context(), func(_ context.Context, job int) (int, error) {
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
	assert.Equal(t, Outcome{Throttled: 1, Failed: 2, Reason: "first"}, out)
}

func TestSharesAddUpToTheWhole(t *testing.T) {
	whole := Load{Workers: 50, Jobs: 200, First: 3}
	for n := 1; n <= 50; n++ {
		sum, next := Load{}, whole.First
		for i := range n {
			part := whole.Share(i, n)
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

// silent is a server that never answers, and says when it is asked.
func silent(t *testing.T, asked func()) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked()
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections() // Close waits for them
		srv.Close()
	})
	return srv.URL
}
