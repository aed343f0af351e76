//go:build unix

package load_test

import (
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A null is a ResponseWriter that remembers only the status.
type null struct {
	header http.Header
	status int
}

func (w *null) Header() http.Header         { return w.header }
func (w *null) Write(b []byte) (int, error) { return len(b), nil }
func (w *null) WriteHeader(status int)      { w.status = status }

// Requests come from more keys than the store can hold, all at the same time. Keys that exceeded
// their quota must stay refused, and the others must not be refused.
func TestAFloodOfKeysStaysWithinMemory(t *testing.T) {
	keys := 100_000
	switch {
	case testenv.Long() && raced: // it would take half an hour
		withoutRaceDetector(t)
		return
	case testenv.Long():
		keys = 5_000_000
	case raced:
		keys = 12_000
	}
	synctest.Test(t, func(t *testing.T) {
		limiter, err := serverside.New(serverside.Config{
			Audit: func(serverside.Event) {},
			Store: &quota.Memory{MaxKeys: 8_192},
			Rules: []serverside.Rule{{
				Name: "key", Stage: serverside.AfterAuth, Policies: []quota.Policy{quota.PerHour(100)},
				Key: serverside.KeyFunc(func(r *http.Request) string { return r.Header["X-User"][0] }),
			}},
		})
		require.NoError(t, err)
		h := limiter.Wrap(http.HandlerFunc(fine))
		w, r := &null{header: make(http.Header)}, &http.Request{Method: "GET", URL: &url.URL{Path: "/"},
			Header: http.Header{"X-User": {""}}, RemoteAddr: "192.0.2.1:1"}
		ask := func(user string) int {
			clear(w.header)
			w.status = http.StatusOK
			r.Header["X-User"][0] = user
			h.ServeHTTP(w, r)
			return w.status
		}

		for range 100 {
			require.Equal(t, 200, ask("greedy"))
		}
		require.Equal(t, 429, ask("greedy"))
		for range 10 {
			require.Equal(t, 200, ask("modest"))
		}
		before := heap()
		for i := range keys {
			require.Equal(t, 200, ask(strconv.Itoa(i)))
			if i%(keys/90) == 0 && i < keys/90*90 {
				require.Equal(t, 200, ask("modest"))
			}
		}
		assert.Equal(t, 429, ask("greedy"))
		assert.Equal(t, 429, ask("modest"), "10 and then 90 of 100 are used")
		after := heap()
		assert.Less(t, after-before, int64(4<<20))
		t.Logf("%d keys took %d KiB", keys, (after-before)>>10)
		runtime.KeepAlive(limiter)
	})
}

// heap is the memory in use after a collection, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
