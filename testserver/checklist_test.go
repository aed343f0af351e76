package testserver_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
	"github.com/heedhttp/heed/testserver"
)

// The tests in this file check what matters before limits go into production, over real HTTP and a
// real Redis.

const patience = 30 * time.Second

// counted is a Config with a Redis store, which fails closed.
func counted(t *testing.T, server *redistest.Server, rules ...serverside.Rule) serverside.Config {
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaxRetries: -1, // a retry could count twice
	})
	t.Cleanup(func() { client.Close() })
	return serverside.Config{
		Store: &redisstore.Store{Client: client, Timeout: patience}, StoreTimeout: patience,
		OnStoreError: serverside.FailClosed, Rules: rules, Audit: func(serverside.Event) {},
	}
}

// limited is a server with cfg's limits.
func limited(t *testing.T, cfg serverside.Config) *testserver.Server {
	limiter, err := serverside.New(cfg)
	require.NoError(t, err)
	return testserver.NewLimited(t, limiter.Wrap)
}

func perHour(name, pattern string, n int64) serverside.Rule {
	return serverside.Rule{Name: name, Pattern: pattern, Policies: []quota.Policy{quota.PerHour(n)}}
}

// ask sends n requests with a plain client and returns the responses.
func ask(t *testing.T, srv *testserver.Server, method, path string, n int) (responses []*http.Response) {
	for range n {
		req, err := http.NewRequest(method, srv.URL+path, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: srv.Transport()}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		responses = append(responses, resp)
	}
	return responses
}

// statuses counts the responses by status.
func statuses(responses []*http.Response) map[int]int {
	count := make(map[int]int)
	for _, resp := range responses {
		count[resp.StatusCode]++
	}
	return count
}

func TestLimiterStateSurvivesARestart(t *testing.T) {
	store := redistest.Start(t)
	rule := perHour("api", "", 5)
	assert.Equal(t, map[int]int{200: 3}, statuses(ask(t, limited(t, counted(t, store, rule)), "GET", "/", 3)))
	restarted := ask(t, limited(t, counted(t, store, rule)), "GET", "/", 3)
	assert.Equal(t, "1", restarted[0].Header.Get("X-RateLimit-Remaining"), "counting goes on")
	assert.Equal(t, map[int]int{200: 2, 429: 1}, statuses(restarted))
}

// The fields are on 200, 429 and all other statuses.
func TestEveryResponseHasTheFields(t *testing.T) {
	srv := limited(t, counted(t, redistest.Start(t), perHour("api", "", 7)))
	for _, status := range []int{200, 201, 204, 304, 404, 500} {
		srv.Route(fmt.Sprint("/", status), testserver.Step{Status: status, Times: -1})
	}
	var all []*http.Response
	for _, status := range []int{200, 201, 204, 304, 404, 500} {
		all = append(all, ask(t, srv, "GET", fmt.Sprint("/", status), 1)...)
	}
	all = append(all, ask(t, srv, "HEAD", "/200", 2)...)
	assert.Equal(t, []int{200, 201, 204, 304, 404, 429, 500}, slices.Sorted(maps.Keys(statuses(all))))
	for i, resp := range all {
		assert.Equal(t, "7", resp.Header.Get("X-RateLimit-Limit"), resp.Status)
		assert.Equal(t, fmt.Sprint(max(0, 6-i)), resp.Header.Get("X-RateLimit-Remaining"), resp.Status)
		assert.Regexp(t, `^\d{10}$`, resp.Header.Get("X-RateLimit-Reset"), resp.Status)
	}
}

// Each algorithm, an overload rule and an outage of the store refuse requests.
func TestEveryRefusalHasARetryAfter(t *testing.T) {
	store := redistest.Start(t)
	configs := map[string]serverside.Config{}
	for _, algorithm := range []quota.Algorithm{quota.TokenBucket, quota.FixedWindow, quota.SlidingWindow,
		quota.SlidingLog} {
		name := algorithm.String()
		configs[name] = counted(t, store,
			serverside.Rule{Name: name, Policies: []quota.Policy{{Quota: 1, Window: 24 * time.Hour, Algorithm: algorithm}}})
	}
	guard := perHour("all", "", 1)
	guard.Stage, guard.Status = serverside.Overload, http.StatusServiceUnavailable
	configs["overload"] = counted(t, store, perHour("one", "", 100), guard)
	stopped := redistest.Start(t)
	stopped.Kill()
	configs["outage"] = counted(t, stopped, perHour("api", "", 1))
	for name, cfg := range configs {
		refused := 0
		for _, resp := range ask(t, limited(t, cfg), "GET", "/", 3) {
			if resp.StatusCode == 200 {
				assert.Empty(t, resp.Header["Retry-After"], name)
				continue
			}
			refused++
			assert.GreaterOrEqual(t, resp.StatusCode, 429, name)
			assert.Len(t, resp.Header["Retry-After"], 1, name)
			assert.Regexp(t, `^[1-9]\d*$`, resp.Header.Get("Retry-After"), name)
		}
		assert.Positive(t, refused, name) // also if a window of a day ends meanwhile
	}
}

func TestEachRouteHasItsOwnLimit(t *testing.T) {
	srv := limited(t, counted(t, redistest.Start(t), perHour("login", "POST /login", 2), perHour("search", "/search", 5),
		perHour("static", "/static/", 1000)))
	assert.Equal(t, map[int]int{200: 2, 429: 1}, statuses(ask(t, srv, "POST", "/login", 3)))
	assert.Equal(t, map[int]int{200: 5, 429: 1}, statuses(ask(t, srv, "GET", "/search", 6)))
	assert.Equal(t, map[int]int{200: 20}, statuses(ask(t, srv, "GET", "/static/x", 20)))
}

// What was used under the old limit still counts.
func TestLimitsChangeWithoutADeployment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("rules: [{name: api, policies: 600/1d}]")
	rules, err := rulefile.Watch(file, rulefile.Env{Config: counted(t, redistest.Start(t))})
	require.NoError(t, err)
	defer rules.Close()
	srv := testserver.NewLimited(t, rules.Limiter.Wrap)
	assert.Equal(t, map[int]int{200: 10}, statuses(ask(t, srv, "GET", "/", 10)))
	write("rules: [{name: api, policies: 12/1d}]")
	rules.Reload()
	assert.Equal(t, map[int]int{200: 2, 429: 1}, statuses(ask(t, srv, "GET", "/", 3)))
	write("rules: [{name: api, policies: none}]")
	rules.Reload()
	assert.Equal(t, map[int]int{429: 1}, statuses(ask(t, srv, "GET", "/", 1)), "an invalid file changes nothing")
}

// The client waits, and is then admitted.
func TestTheClientHonoursRetryAfter(t *testing.T) {
	policy := quota.Policy{Quota: 60, Window: time.Minute, Burst: 2}
	srv := limited(t, counted(t, redistest.Start(t), serverside.Rule{Name: "api", Policies: []quota.Policy{policy}}))
	client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
	sent := 0
	for len(srv.Log()) == sent { // the third is refused, unless a second has passed
		require.Equal(t, 200, send(t, client, "PUT", srv.URL, fmt.Sprint(sent)))
		sent++
	}
	require.GreaterOrEqual(t, sent, 3)
	var want, got []int
	for range sent - 1 {
		want = append(want, 200)
	}
	log := srv.Log()
	for _, exchange := range log {
		got = append(got, exchange.Status)
	}
	require.Equal(t, append(want, 429, 200), got, "one refusal, and none after it")
	refused, retried := log[sent-1], log[sent]
	hint, err := time.ParseDuration(refused.ResponseHeader.Get("Retry-After") + "s")
	require.NoError(t, err)
	assert.Positive(t, hint)
	assert.GreaterOrEqual(t, retried.Arrived.Sub(refused.Answered), hint)
	srv.Check(t)
}
