package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
)

func TestThreeProcessesShareAPaceABudgetAndCoolDowns(t *testing.T) {
	store := redistest.Start(t)
	const perSecond, each = 50, 41
	var requests, lastAt atomic.Int64 // when the last came, in nanoseconds since start
	var seen sync.Map                 // the keys in Redis: that of the pace may expire after a second
	look := func() {
		keys, err := store.Do("EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0")
		assert.NoError(t, err)
		for _, key := range strings.Fields(keys) {
			seen.Store(key, true)
		}
	}
	start := time.Now()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Add(1)
		if n%10 == 0 {
			look()
		}
		switch n {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3 * each:
			lastAt.Store(int64(time.Since(start)))
			w.Header().Set("Retry-After", "1")
			w.Header().Set("X-RateLimit-Remaining", "0") // or it might be one node's refusal
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer srv.Close()
	var processes sync.WaitGroup
	for range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: store.Addr})
		defer rdb.Close()
		client := &http.Client{Transport: newTransport(rdb, quota.Policy{Quota: perSecond, Window: time.Second, Burst: 1})}
		processes.Go(func() {
			for range each {
				resp, err := client.Get(srv.URL)
				if assert.NoError(t, err) {
					assert.Equal(t, http.StatusOK, resp.StatusCode)
					assert.NoError(t, resp.Body.Close())
				}
			}
		})
	}
	processes.Wait()

	// While Redis is late, each process uses its share of a second pace. Without sharing there
	// would be three paces.
	const skew = 100 * time.Millisecond // of the clock of Redis
	assert.GreaterOrEqual(t, time.Duration(lastAt.Load()), (3*each-4)*time.Second/(2*perSecond)-skew)

	look()
	for _, key := range []string{"orders:shared", "heed:budget:orders", "orders:{cool-downs}"} {
		_, found := seen.Load(key)
		assert.True(t, found, key)
	}
}
