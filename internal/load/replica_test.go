//go:build unix

package load_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/daemon"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

// replicaLimit is the limit of each failure mode's rule.
const replicaLimit = 50

// serveReplica is one of several server processes on one Redis. how has its address, that of Redis,
// and a timeout.
func serveReplica(how string) {
	words := strings.Fields(how)
	patience, err := time.ParseDuration(words[2])
	if err != nil {
		panic(err)
	}
	rule := func(name string, mode serverside.FailureMode) serverside.Rule {
		return serverside.Rule{
			Name: name, Pattern: "/" + name, Stage: serverside.AfterAuth, OnStoreError: mode,
			Policies: []quota.Policy{quota.PerHour(replicaLimit)},
			Key:      serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") }),
		}
	}
	limiter, err := serverside.New(serverside.Config{
		Store:        &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: words[1]}), Timeout: patience},
		StoreTimeout: patience + 25*time.Millisecond,
		Rules: []serverside.Rule{rule("open", serverside.FailOpen), rule("closed", serverside.FailClosed),
			rule("local", serverside.FailLocal)},
		Exempt: []string{"/health"},
	})
	if err != nil {
		panic(err)
	}
	panic(http.ListenAndServe(words[0], limiter.Wrap(http.HandlerFunc(fine))))
}

// A service is two replicas on one Redis, behind nginx.
type service struct {
	*testing.T
	redis    *redistest.Server
	replicas []*daemon.Daemon
	url      string
	client   *http.Client
}

func newService(t *testing.T, patience time.Duration) *service {
	t.Helper()
	s := &service{T: t, redis: redistest.Start(t)}
	var addrs []string
	for range 2 {
		addr, d := startReplica(t, s.redis.Addr, patience)
		addrs, s.replicas = append(addrs, addr), append(s.replicas, d)
	}
	s.url = gatewaytest.Balancer(t, addrs...)
	s.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func startReplica(t *testing.T, redisAddr string, patience time.Duration) (addr string, d *daemon.Daemon) {
	t.Helper()
	var err error
	for range 5 { // another process may take the port first
		addr = fmt.Sprintf("127.0.0.1:%d", daemon.FreePort(t))
		d, err = daemon.Start(commandAs(asReplica, fmt.Sprint(addr, " ", redisAddr, " ", patience)),
			func(*daemon.Daemon) bool {
				resp, err := http.Get("http://" + addr + "/health")
				if err == nil {
					resp.Body.Close()
				}
				return err == nil && resp.StatusCode == http.StatusOK
			})
		if err == nil {
			t.Cleanup(d.Kill)
			return addr, d
		}
	}
	require.NoError(t, err)
	return "", nil
}

// ask sends a user's request, and returns the response and its duration.
func (s *service) ask(path, user string) (*http.Response, time.Duration) {
	req, err := http.NewRequest("GET", s.url+path, nil)
	if !assert.NoError(s, err) {
		return new(http.Response), 0
	}
	req.Header.Set("X-User", user)
	start := time.Now()
	resp, err := s.client.Do(req)
	if !assert.NoError(s, err) {
		return new(http.Response), 0
	}
	took := time.Since(start)
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp, took
}

// flood sends n requests, 16 at a time, and returns the statuses.
func (s *service) flood(path, user string, n int) map[int]int {
	var mu sync.Mutex
	statuses, all, left := make(map[int]int), sync.WaitGroup{}, make(chan bool, n)
	for range n {
		left <- true
	}
	close(left)
	for range 16 {
		all.Go(func() {
			for range left {
				resp, _ := s.ask(path, user)
				mu.Lock()
				statuses[resp.StatusCode]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return statuses
}

func TestReplicasBehindAProxyAdmitTheLimitTogether(t *testing.T) {
	s := newService(t, 20*time.Second)
	exactly := map[int]int{200: replicaLimit, 429: 150}
	rounds := 3
	if testenv.Long() {
		rounds = 200
	}
	for i := range rounds {
		require.Equal(t, exactly, s.flood("/open", fmt.Sprint("user", i), replicaLimit+150))
	}
	assert.Equal(t, 10, s.flood("/open", "ann", 10)[200])
	s.replicas[0].Kill()
	assert.Equal(t, map[int]int{200: replicaLimit - 10, 429: 10}, s.flood("/open", "ann", replicaLimit),
		"one replica is left")
	assert.Equal(t, exactly, s.flood("/open", "bob", replicaLimit+150))
}

func TestEachRuleFollowsItsModeWhileRedisHangs(t *testing.T) {
	s := newService(t, 50*time.Millisecond)
	for _, path := range []string{"/open", "/closed", "/local"} {
		require.Eventually(t, func() bool {
			resp, _ := s.ask(path, "first")
			return resp.Header.Get("RateLimit") != ""
		}, time.Minute, 10*time.Millisecond, "Redis decides")
	}
	s.redis.Stop()
	defer s.redis.Cont()
	var all []time.Duration
	for _, c := range []struct {
		path   string
		status int
	}{{"/open", 200}, {"/closed", 503}, {"/local", 200}, {"/health", 200}} {
		for i := range 25 {
			resp, took := s.ask(c.path, "ann")
			require.Equal(t, c.status, resp.StatusCode, "%s, %d", c.path, i)
			assert.Equal(t, c.status == 503, resp.Header.Get("Retry-After") != "")
			all = append(all, took)
		}
	}
	slices.Sort(all)
	t.Logf("while Redis hangs, an answer takes %v in the median, %v at most", all[len(all)/2], all[len(all)-1])
	if testenv.Long() {
		assert.Less(t, all[len(all)*9/10], 100*time.Millisecond, "a busy machine explains the rest")
	}
	statuses := s.flood("/local", "ann", 3*replicaLimit)
	assert.LessOrEqual(t, statuses[200], 2*replicaLimit-25, "each replica counts by itself")
	assert.Equal(t, 3*replicaLimit, statuses[200]+statuses[429])

	s.redis.Cont()
	require.Eventually(t, func() bool {
		resp, _ := s.ask("/closed", "bob")
		return resp.StatusCode == 200
	}, time.Minute, 10*time.Millisecond, "Redis decides again")
}
