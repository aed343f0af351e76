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

// Three client processes call a server that is down. Together they send the retries of one ratio and
// one floor.
func TestThreeProcessesSpendOneBudget(t *testing.T) {
	const floor = 10
	requests := int(stated(300, 100))
	if os.Getenv("BUDGET_REDIS") != "" {
		callAll(t, requests)
		return
	}
	t.Parallel()
	store := redistest.Shared(t)
	var arrived, done atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			done.Add(1)
			return
		}
		arrived.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer upstream.Close()
	var all sync.WaitGroup
	var ends []io.Closer
	for i := range 3 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		child.Env = append(os.Environ(), "BUDGET_REDIS="+store.Addr, "BUDGET_UPSTREAM="+upstream.URL)
		end, err := child.StdinPipe()
		require.NoError(t, err)
		ends = append(ends, end)
		all.Go(func() {
			out, err := child.CombinedOutput()
			assert.NoError(t, err, "process %d: %s", i, out)
		})
	}
	require.Eventually(t, func() bool { return done.Load() == 3 }, hang, 5*ms)
	// Deposits may have arrived by timers too, besides those sent with a Withdraw.
	b, retries := failing(t, slowly(newClient(t, store))), int(arrived.Load())-3*requests
	grant(t, 3*requests/10+floor-retries, b)
	for _, end := range ends {
		end.Close()
	}
	all.Wait()
	assert.GreaterOrEqual(t, retries, floor, "the floor is full at the start")
}

// callAll is one of the processes. Each of its requests fails, and its response is returned unchanged.
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
	_, err := http.Get(os.Getenv("BUDGET_UPSTREAM") + "/done")
	require.NoError(t, err)
	io.Copy(io.Discard, os.Stdin) // until the deposits sent by timers have arrived
}
