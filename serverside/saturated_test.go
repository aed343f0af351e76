package serverside_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

// onRedis returns a handler limited by a real Redis, which counts the requests it serves.
func onRedis(t *testing.T, served *atomic.Int64, mode serverside.FailureMode, policy quota.Policy) http.Handler {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { client.Close() })
	cfg := serverside.Config{
		Store: &redisstore.Store{Client: client}, OnStoreError: mode, Audit: silent, Rules: oneRule(policy),
	}
	return must(t, cfg).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
}

func TestOverloadAdmitsAtMostTwiceTheLimit(t *testing.T) {
	var served atomic.Int64
	h := onRedis(t, &served, 0, quota.PerHour(20))
	var group sync.WaitGroup
	begin := make(chan struct{})
	for range 8000 {
		group.Go(func() {
			<-begin
			askPeer(h, "192.0.2.1:1")
		})
	}
	close(begin)
	group.Wait()
	assert.LessOrEqual(t, served.Load(), int64(45))
	assert.GreaterOrEqual(t, served.Load(), int64(20))
}

// Other goroutines use all the time that this process has.
func TestBusyProcessAdmitsItsLimit(t *testing.T) {
	testenv.NeedLong(t)
	for _, busy := range []int{0, 8, 32, 100} {
		var served, sent atomic.Int64
		h := onRedis(t, &served, 0, quota.PerSecond(10))
		stop := make(chan struct{})
		var group sync.WaitGroup
		until := func(do func()) {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						do()
					}
				}
			})
		}
		for range busy {
			until(func() {
				for start := time.Now(); time.Since(start) < 5*time.Millisecond; {
				}
				time.Sleep(time.Millisecond)
			})
		}
		for range 20 {
			until(func() {
				sent.Add(1)
				h.ServeHTTP(httptest.NewRecorder(), request("GET", "/", "192.0.2.1:1"))
				time.Sleep(5 * time.Millisecond)
			})
		}
		start := time.Now()
		time.Sleep(1500 * time.Millisecond)
		close(stop)
		group.Wait()
		limit := int64(10+10*time.Since(start).Seconds()) + 1
		t.Logf("%3d busy: %d sent, %d served; the limit and its burst are %d", busy, sent.Load(), served.Load(), limit)
		assert.LessOrEqual(t, served.Load(), 2*limit, "the burst of Redis, and of this process")
	}
}
