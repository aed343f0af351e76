package pace_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/pace"
)

func TestHostsAreIndependent(t *testing.T) {
	pacer := pace.PerHost(hourly, 1)
	for _, url := range []string{"http://a.example", "https://a.example", "http://b.example", "http://a.example:8080"} {
		require.NoError(t, pacer.WaitAtMost(request(t.Context(), url), 0))
		overdueError(t, pacer.WaitAtMost(request(t.Context(), url+"/other?page=2"), 0))
	}
	overdueError(t, pacer.WaitAtMost(request(t.Context(), "HTTP://A.Example:80"), 0))
}

func TestKeyDefinesTheKeys(t *testing.T) {
	pacer := &pace.Keyed{Limit: hourly, Key: func(req *http.Request) string { return req.Method }}
	require.NoError(t, pacer.WaitAtMost(request(t.Context(), "http://a.example"), 0))
	assert.Equal(t, "GET", overdueError(t, pacer.WaitAtMost(request(t.Context(), "http://b.example"), 0)).Key)

	pacer = &pace.Keyed{Limit: hourly, Key: func(*http.Request) string { return "" }}
	require.NoError(t, pacer.WaitAtMost(get(), 0))
	overdueError(t, pacer.WaitAtMost(get(), 0))
}

func TestTheLeastRecentFullKeyIsForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Keyed{Limit: 1, Burst: 2, MaxKeys: 3}
		let := func(host string) error { return pacer.WaitAtMost(request(t.Context(), "http://"+host), 0) }
		drain := func(host string) {
			require.NoError(t, let(host))
			require.NoError(t, let(host))
		}
		drain("a")
		drain("b")
		time.Sleep(1900 * ms)
		drain("c")
		require.NoError(t, let("b")) // at 0.9 now, a at 1.9, c at 0: none full
		require.NoError(t, let("d")) // a is forgotten as the least recently used
		require.NoError(t, let("d"))

		assert.Error(t, let("b"))
		assert.Error(t, let("c"))
		assert.Error(t, let("d"))
		time.Sleep(1100 * ms) // b is full; c and d are not
		drain("e")
		assert.NoError(t, let("c"), "c has one token, not two")
		assert.Error(t, let("c"))
		assert.NoError(t, let("d"))
		assert.Error(t, let("d"))
	})
}

func TestOfEqualKeysTheLeastRecentIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Keyed{Limit: 1, MaxKeys: 2}
		let := func(host string) error { return pacer.WaitAtMost(request(t.Context(), "http://"+host), 0) }
		require.NoError(t, let("a"))
		require.NoError(t, let("b"))
		require.Error(t, let("a")) // a refused use counts, too
		require.NoError(t, let("c"))
		assert.Error(t, let("a"))
		assert.NoError(t, let("b"), "it was forgotten")
	})
}

func TestAKeyWithWaitersIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Keyed{Limit: 10, MaxKeys: 1}
		tl := newTimeline(t, pacer)
		tl.goes()
		b := tl.joins()
		for i := range 5 {
			require.NoError(t, pacer.WaitAtMost(request(t.Context(), fmt.Sprintf("http://%d.example", i)), 0))
		}
		tl.waits(200 * ms)
		tl.wg.Wait()
		tl.admittedAt(100*ms, b)
	})
}

func TestAFloodOfHostsKeepsKeysInUse(t *testing.T) {
	pacer := pace.PerHost(0.001, 1)
	flood := func(from, to int) (goes int) {
		for i := from; i < to; i++ {
			if pacer.WaitAtMost(request(t.Context(), fmt.Sprintf("http://%d.example", i)), 0) == nil {
				goes++
			}
		}
		return goes
	}
	assert.Equal(t, 1024, flood(0, 1024))
	assert.Equal(t, 0, flood(0, 1024), "1,024 are remembered by default")
	assert.Equal(t, 1, flood(1024, 1025))
}
