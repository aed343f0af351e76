package heed_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// usage is the memory of this process after a garbage collection.
func usage() (heap, stacks float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// What a call holds that waits for a host that is down: after a 503 with a page of 4 KiB, and without ever
// having been sent.
func TestWhatAWaitingCallHolds(t *testing.T) {
	testenv.NeedLong(t)
	page := bytes.Repeat([]byte("x"), 4<<10)
	t.Run("after a 503", func(t *testing.T) {
		down, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			w.Write(page)
		})
		down.MaxIdleConnsPerHost = 1
		heap := heapOfAWaitingCall(t, down)
		assert.Less(t, heap, 5.*1024, "they share one copy of the page")
	})
	t.Run("never sent", func(t *testing.T) {
		heap := heapOfAWaitingCall(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}})
		assert.Less(t, heap, 2.*1024)
	})
}

// heapOfAWaitingCall returns how much of the heap a call holds that waits for the host behind base.
func heapOfAWaitingCall(t *testing.T, base http.RoundTripper) float64 {
	const calls = 5000
	const first = 50 // their failures show that the host is down
	var arrived, answered, ended atomic.Int64
	all := make(chan bool)
	tr := &heed.Transport{
		Retry: heed.RetryPolicy{MaxOutage: time.Hour, MaxWait: time.Hour},
		Base: roundTripFunc(func(req *http.Request) (*http.Response, error) { // the first attempts are under way together
			n := arrived.Add(1)
			if n == calls {
				close(all)
			}
			<-all
			if n <= calls {
				time.Sleep(20 * time.Millisecond * time.Duration(min(n, first)))
			}
			defer answered.Add(1)
			return base.RoundTrip(req)
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ends sync.WaitGroup
	defer ends.Wait()
	defer cancel()
	heap, stacks := usage()
	for range calls {
		ends.Go(func() {
			defer ended.Add(1)
			if resp, err := tr.RoundTrip(get(ctx)); err == nil {
				resp.Body.Close()
			}
		})
	}
	for answered.Load() < calls || runtime.NumGoroutine() > calls+20 { // until all wait and no connection is left
		time.Sleep(10 * time.Millisecond)
	}
	waitingHeap, waitingStacks := usage()
	assert.Zero(t, ended.Load(), "calls that do not wait")
	t.Logf("%.0f bytes of heap and %.0f of stack a call", (waitingHeap-heap)/calls, (waitingStacks-stacks)/calls)
	return (waitingHeap - heap) / calls
}
