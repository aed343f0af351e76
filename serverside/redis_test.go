package serverside_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

func askPeer(h http.Handler, peer string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/things", nil)
	r.RemoteAddr = peer
	h.ServeHTTP(w, r)
	return w
}

// slowly returns options with timeouts for a busy machine.
func slowly(addr string) *redis.Options {
	return &redis.Options{Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		PoolTimeout: time.Minute}
}

// inRedis returns a limited handler that waits for Redis for patience, or by default if that is 0.
func inRedis(t *testing.T, addr string, mode serverside.FailureMode, patience time.Duration,
	audit func(serverside.Event)) http.Handler {
	client := redis.NewClient(slowly(addr))
	t.Cleanup(func() { client.Close() })
	l, err := serverside.New(serverside.Config{
		Store:        &redisstore.Store{Client: client, Timeout: patience},
		StoreTimeout: patience,
		OnStoreError: mode,
		Rules:        []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerHour(5)}}},
		Audit:        audit,
	})
	require.NoError(t, err)
	return l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func TestReplicasCountTogetherExactly(t *testing.T) {
	store := redistest.Start(t)
	replicas := []http.Handler{
		inRedis(t, store.Addr, serverside.FailClosed, time.Minute, silent),
		inRedis(t, store.Addr, serverside.FailClosed, time.Minute, silent),
	}
	for round := range 50 {
		var admitted atomic.Int64
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if askPeer(replicas[i%2], fmt.Sprintf("192.0.2.%d:1234", round)).Code == 200 {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 5, admitted.Load(), "round %d", round)
	}
	restarted := inRedis(t, store.Addr, serverside.FailClosed, time.Minute, silent)
	w := askPeer(restarted, "192.0.2.0:1234")
	assert.Equal(t, 429, w.Code, "what was spent stays spent")
	assert.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
}

func TestRedisStopsAndComesBack(t *testing.T) {
	store := redistest.Start(t)
	store.Stop()
	for mode, want := range map[serverside.FailureMode][]int{
		serverside.FailOpen:   {200, 200, 200, 200, 200, 200, 200, 200},
		serverside.FailClosed: {503, 503, 503, 503, 503, 503, 503, 503},
		serverside.FailLocal:  {200, 200, 200, 200, 200, 429, 429, 429},
	} {
		for begun := time.Now(); ; {
			require.Less(t, time.Since(begun), time.Minute)
			var events eventLog
			h := inRedis(t, store.Addr, mode, 0, events.add)
			var answers []*httptest.ResponseRecorder
			start := time.Now()
			for range want {
				answers = append(answers, askPeer(h, "192.0.2.1:1234"))
			}
			if len(events.of(serverside.StoreLate)) > 0 { // suspended for too long, it counted by itself
				continue
			}
			if testenv.Long() {
				assert.Less(t, time.Since(start), 300*time.Millisecond, "one wait of 50 ms, and none after it")
			}
			for i, w := range answers {
				require.Equal(t, want[i], w.Code, "mode %v, request %d", mode, i)
				shown := w.Header().Get("X-RateLimit-Limit")
				assert.Equal(t, mode == serverside.FailLocal, shown != "", "no fields without a count")
				assert.Equal(t, w.Code >= 400, w.Header().Get("Retry-After") != "")
			}
			break
		}
	}

	var events eventLog
	closed := inRedis(t, store.Addr, serverside.FailClosed, 0, events.add)
	told := func(kind serverside.EventKind) func() bool {
		return func() bool {
			askPeer(closed, "192.0.2.2:1234")
			return len(events.of(kind)) > 0
		}
	}
	require.Eventually(t, told(serverside.StoreFailed), time.Minute, time.Millisecond)
	store.Cont()
	require.Eventually(t, told(serverside.StoreRecovered), time.Minute, 50*time.Millisecond, "it recovers alone")
	require.Eventually(t, func() bool { return askPeer(closed, "192.0.2.3:1234").Code == 200 },
		time.Minute, 50*time.Millisecond, "it admits again")
}

func replica(t *testing.T, addr string, h http.Handler, rules ...serverside.Rule) http.Handler {
	client := redis.NewClient(slowly(addr))
	t.Cleanup(func() { client.Close() })
	l, err := serverside.New(serverside.Config{
		Store: &redisstore.Store{Client: client, Timeout: time.Minute}, StoreTimeout: time.Minute,
		OnStoreError: serverside.FailClosed,
		Rules:        rules, Audit: silent,
	})
	require.NoError(t, err)
	return l.Wrap(h)
}

func TestAllReplicasKeepAnAccountLocked(t *testing.T) {
	store := redistest.Start(t)
	rules := logins(hourly)
	one := replica(t, store.Addr, http.HandlerFunc(doors), rules...)
	two := replica(t, store.Addr, http.HandlerFunc(doors), rules...)
	require.Equal(t, 200, login(one, "192.0.2.1:1", "ann", "right").Code)
	for i := range 5 {
		require.Equal(t, 401, login([]http.Handler{one, two}[i%2], "192.0.2.1:1", "ann", "guess").Code)
	}
	for _, h := range []http.Handler{one, two} {
		w := login(h, "192.0.2.2:1", "ann", "right")
		assert.Equal(t, 429, w.Code)
		assert.Regexp(t, "^(3600|3[45]..)$", w.Header().Get("Retry-After"))
		assert.Equal(t, 200, login(h, "192.0.2.2:1", "bob", "right").Code)
	}
}

func TestReplicasCountRequestsInFlightTogether(t *testing.T) {
	store := redistest.Start(t)
	rule := serverside.Rule{
		Name: "api", MaxInFlight: 2, Key: serverside.KeyFunc(func(*http.Request) string { return "tenant" }),
	}
	busy := newHeld()
	one, two := replica(t, store.Addr, busy, rule), replica(t, store.Addr, busy, rule)
	var group sync.WaitGroup
	for _, h := range []http.Handler{one, two} {
		group.Go(func() { askPeer(h, "192.0.2.1:1") })
		<-busy.inside
	}
	for _, h := range []http.Handler{one, two} {
		assert.Equal(t, 429, askPeer(h, "192.0.2.1:1").Code)
	}
	close(busy.leave)
	group.Wait()
	assert.Equal(t, 200, askPeer(two, "192.0.2.1:1").Code)
}

func TestLossOfRedisDataIsNoError(t *testing.T) {
	store := redistest.Start(t)
	client := redis.NewClient(slowly(store.Addr))
	defer client.Close()
	h := inRedis(t, store.Addr, serverside.FailClosed, time.Minute, silent)
	require.Equal(t, 200, askPeer(h, "192.0.2.1:1").Code)
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	w := askPeer(h, "192.0.2.1:1")
	require.Equal(t, 200, w.Code, "its scripts")
	assert.Equal(t, "3", w.Header().Get("X-RateLimit-Remaining"))
	require.NoError(t, client.FlushAll(t.Context()).Err())
	w = askPeer(h, "192.0.2.1:1")
	require.Equal(t, 200, w.Code, "its counts")
	assert.Equal(t, "4", w.Header().Get("X-RateLimit-Remaining"))
}

func TestRedisContainsNoSecrets(t *testing.T) {
	store := redistest.Start(t)
	client := redis.NewClient(slowly(store.Addr))
	defer client.Close()
	h := replica(t, store.Addr, new(ok),
		at(serverside.AfterAuth, by(serverside.Header("Authorization"), perHour("token", "", 5))))
	require.Equal(t, 200, ask(h, "GET", "/", "Authorization", "Bearer s3cr3t").Code)
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.NotContains(t, keys[0], "s3cr3t")
	assert.Contains(t, keys[0], serverside.HashKey("Authorization", "Bearer s3cr3t"))
	value, err := client.Get(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	assert.NotContains(t, value, "s3cr3t")
}
