package serverside_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/quota"
)

var leaky = quota.Policy{Quota: 10, Window: time.Second, Burst: 4, Algorithm: quota.LeakyBucket}

func TestLeakyBucketAdmitsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex // guards served
		var served []time.Duration
		h := limit(t, leaky).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, time.Since(start))
		}))
		codes := make(chan int, 8)
		for range cap(codes) {
			go func() { codes <- ask(h, "GET", "/").Code }()
		}
		counts := make(map[int]int)
		for range cap(codes) {
			counts[<-codes]++
		}
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 400 * ms}, served)
		assert.Equal(t, map[int]int{200: 5, 429: 3}, counts)
	})
}

func TestDisconnectedRequestInALeakyBucketIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(ok)
		limited := limit(t, leaky).Wrap(h)
		ask(limited, "GET", "/")
		ctx, gone := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer gone()
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		start := time.Now()
		serve(limited, r)
		assert.Equal(t, 50*time.Millisecond, time.Since(start))
		assert.Equal(t, 1, h.served)
	})
}
