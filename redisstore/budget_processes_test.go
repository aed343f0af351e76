package redisstore_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThreeProcessesSpendOneBudget starts three clients, each a process, against
// a server that is down: together they send one ratio and one floor of retries.
func TestThreeProcessesSpendOneBudget(t *testing.T) {
	const requests, floor = 300, 10
	if os.Getenv("BUDGET_REDIS") != "" {
		callAll(t, requests)
		return
	}
	store := redistest.Start(t)
	var arrived atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer upstream.Close()
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
			child.Env = append(os.Environ(), "BUDGET_REDIS="+store.Addr, "BUDGET_UPSTREAM="+upstream.URL)
			out, err := child.CombinedOutput()
			assert.NoError(t, err, "process %d: %s", i, out)
		})
	}
	all.Wait()
	assert.EqualValues(t, 3*requests/10+floor, arrived.Load()-3*requests)
}

// callAll is one of the processes. Each of its requests fails, and the response
// is handed over as it came.
func callAll(t *testing.T, requests int) {
	store := redis.NewClient(&redis.Options{Addr: os.Getenv("BUDGET_REDIS")})
	defer store.Close()
	client := &http.Client{Transport: &heed.Transport{
		Budget: failing(t, slowly(store)),
		Retry:  heed.RetryPolicy{Backoff: func(heed.Attempt) time.Duration { return time.Millisecond }},
	}}
	workers := make(chan struct{}, 10)
	var all sync.WaitGroup
	for i := range requests {
		workers <- struct{}{}
		all.Go(func() {
			defer func() { <-workers }()
			resp, err := client.Get(fmt.Sprint(os.Getenv("BUDGET_UPSTREAM"), "/", i))
			if !assert.NoError(t, err) {
				return
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			assert.NoError(t, err)
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		})
	}
	all.Wait()
	require.False(t, t.Failed())
}
