package redisstore_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/redisstore"
)

// down answers every request with a 503.
type down struct{ sent atomic.Int64 }

func (d *down) RoundTrip(req *http.Request) (*http.Response, error) {
	d.sent.Add(1)
	return &http.Response{
		StatusCode: 503, Proto: "HTTP/1.1", ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
}

// In an outage, a thousand small clients with one budget send as many retries as one large client: a
// tenth of the requests, plus one a second. See Marc Brooker, "Fixing retries with token buckets and
// circuit breakers" (2022), "The effect of client count".
func TestAThousandClientsSendNoMoreRetriesThanOne(t *testing.T) {
	testenv.NeedLong(t) // real time, since Redis has its own clock
	server := redistest.Start(t)
	for _, n := range []int{10, 100, 1000} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		require.NoError(t, client.FlushAll(t.Context()).Err())
		var base down
		clients := make([]*heed.Transport, n)
		for i := range clients {
			clients[i] = &heed.Transport{
				Base: &base, Budget: &redisstore.Budget{Client: client, Key: "api", Timeout: time.Second},
				Retry: heed.RetryPolicy{Backoff: func(heed.Attempt) time.Duration { return 0 }},
			}
		}
		calls, end := 0, time.Now().Add(90*time.Second)
		var all sync.WaitGroup
		for time.Now().Before(end) {
			time.Sleep(time.Duration(rand.ExpFloat64() * float64(10*time.Millisecond)))
			calls++
			all.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", host, nil)
				if resp, err := clients[rand.IntN(n)].RoundTrip(req); assert.NoError(t, err) {
					resp.Body.Close()
				}
			})
		}
		all.Wait()
		perCall := float64(base.sent.Load()) / float64(calls)
		t.Logf("%d clients: %.3f requests a call, of %d", n, perCall, calls)
		assert.LessOrEqual(t, perCall, 1.12)
		assert.Greater(t, perCall, 1.05)
	}
}
