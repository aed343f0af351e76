package pace_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A bucket that is full again within a second is used like any other.
func TestABucketWithASmallBurstIsFullyUsed(t *testing.T) {
	for _, p := range []quota.Policy{
		{Quota: 20, Window: time.Second, Burst: 4},
		{Quota: 100, Window: time.Second, Burst: 20},
		{Quota: 1000, Window: time.Second, Burst: 200},
		{Quota: 6000, Window: time.Minute, Burst: 20},
		{Quota: 2400, Window: time.Minute, Burst: 8},
		{Quota: 600, Window: time.Minute, Burst: 10},
		{Quota: 600, Window: time.Minute, Burst: 2},
		{Quota: 60, Window: time.Minute, Burst: 1},
		{Quota: 600, Window: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, _ := shareQuota(t, paired(0, p), 30*time.Second, 0)
			perMinute := p.Quota * int64(time.Minute/p.Window)
			t.Logf(
				"%d in %v, burst %d: %.2f %% refused, %.0f %% used", p.Quota, p.Window, p.Burst,
				100*ours.share(), 100*used(perMinute, 30*time.Second, ours),
			)
			assert.LessOrEqual(t, ours.share(), 0.02, p)
			assert.GreaterOrEqual(t, used(perMinute, 30*time.Second, ours), 0.85, p)
		})
	}
}

// What comes back while an answer is in flight is not lost.
func TestABucketWithSlowAnswersIsFullyUsed(t *testing.T) {
	for _, test := range []struct {
		policy  quota.Policy
		latency time.Duration
	}{
		{quota.Policy{Quota: 100, Window: time.Second, Burst: 20}, 300 * ms},
		{quota.Policy{Quota: 50, Window: time.Second, Burst: 50}, 900 * ms},
		{quota.Policy{Quota: 5, Window: time.Second, Burst: 1}, 50 * ms},
		{quota.Policy{Quota: 5, Window: time.Second, Burst: 1}, time.Second},
		{quota.Policy{Quota: 600, Window: time.Minute, Burst: 10}, time.Second},
		{quota.Policy{Quota: 600, Window: time.Minute, Burst: 10}, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, _ := shareQuotaAfter(t, paired(0, test.policy), test.latency, 2*time.Minute, 0)
			perMinute := test.policy.Quota * int64(time.Minute/test.policy.Window)
			t.Logf("%d in %v, burst %d, after %v: %.2f %% refused, %.0f %% used", test.policy.Quota,
				test.policy.Window, test.policy.Burst,
				test.latency, 100*ours.share(), 100*used(perMinute, 2*time.Minute, ours))
			assert.LessOrEqual(t, ours.share(), 0.03, test)
			assert.GreaterOrEqual(t, used(perMinute, 2*time.Minute, ours), 0.85, test)
		})
	}
}

// A github has resources that only X-RateLimit-Resource tells apart.
type github struct {
	mu        sync.Mutex
	resources map[string]*resource
	refused   atomic.Int64
}

type resource struct {
	limit  int
	window time.Duration
	used   int
	end    time.Time
}

func newGithub() *github {
	return &github{resources: map[string]*resource{
		"core": {limit: 5000, window: time.Hour}, "search": {limit: 30, window: time.Minute},
		"code_search": {limit: 10, window: time.Minute},
	}}
}

func (g *github) RoundTrip(req *http.Request) (*http.Response, error) {
	sleeps(req.Context(), 50*ms)
	g.mu.Lock()
	defer g.mu.Unlock()
	name := req.Header.Get("Resource")
	r, status := g.resources[name], 200
	if now := time.Now(); !now.Before(r.end) {
		r.used, r.end = 0, now.Add(r.window).Truncate(time.Second)
	}
	if r.used++; r.used > r.limit {
		r.used, status = r.limit, 403
		g.refused.Add(1)
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: req, Header: http.Header{
		"X-Ratelimit-Limit": {strconv.Itoa(r.limit)}, "X-Ratelimit-Remaining": {strconv.Itoa(r.limit - r.used)},
		"X-Ratelimit-Reset": {strconv.FormatInt(r.end.Unix(), 10)}, "X-Ratelimit-Resource": {name},
		"Date": {time.Now().UTC().Format(http.TimeFormat)},
	}}, nil
}

// The results count the outcomes of calls.
type results struct {
	sent, failed int
	longest      time.Duration
}

// calls sends a request for resource every so often, for the duration of all.
func calls(t *testing.T, client *http.Client, url, resource string, every, all time.Duration) results {
	var (
		o  results
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for start := time.Now(); time.Since(start) < all; time.Sleep(every) {
		wg.Go(func() {
			req := request(t.Context(), url)
			req.Header.Set("Resource", resource)
			start := time.Now()
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			o.sent++
			if err != nil || resp.StatusCode != 200 {
				o.failed++
			}
			o.longest = max(o.longest, time.Since(start))
		})
	}
	wg.Wait()
	return o
}

// Each of several resources is used below its own limit, and the limits of the others do
// not apply, at GitHub and at an unknown server.
func TestResourcesOfOneHostAreIndependent(t *testing.T) {
	for _, host := range []string{"https://api.github.com", "https://unknown.example"} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(fakeStart)
			server := newGithub()
			client := &http.Client{Transport: &heed.Transport{Base: server, Pacer: &pace.Advertised{}}}
			var core, search, code results
			var wg sync.WaitGroup
			wg.Go(func() { core = calls(t, client, host+"/repos/x/y", "core", time.Second, 25*time.Minute) })
			wg.Go(func() { search = calls(t, client, host+"/search/issues", "search", 3*time.Second, 25*time.Minute) })
			wg.Go(func() { code = calls(t, client, host+"/search/code", "code_search", 10*time.Second, 25*time.Minute) })
			wg.Wait()
			t.Logf("%s: %+v %+v %+v", host, core, search, code)
			assert.Zero(t, server.refused.Load())
			for _, o := range []results{core, search, code} {
				assert.Zero(t, o.failed)
			}
			assert.LessOrEqual(t, core.longest, 100*ms, "only the first one may wait, for an answer to another")
			assert.LessOrEqual(t, search.longest, 4*time.Second)
			assert.LessOrEqual(t, code.longest, 10*time.Second)
		})
	}
}

// A script alternates searches and core requests.
func TestSearchesDoNotSlowCoreRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(fakeStart)
		client := &http.Client{Transport: &heed.Transport{Base: newGithub(), Pacer: &pace.Advertised{}}}
		start := time.Now()
		for range 20 {
			for i := range 6 {
				path, resource := "/repos/x/y", "core"
				if i == 0 {
					path, resource = "/search/issues", "search"
				}
				req := request(t.Context(), "https://api.github.com"+path)
				req.Header.Set("Resource", resource)
				resp, err := client.Do(req)
				require.NoError(t, err)
				resp.Body.Close()
			}
		}
		assert.LessOrEqual(t, time.Since(start), 35*time.Second,
			"of 30 searches a minute 20 are used: 7 without delay, the others spread over what is left")
	})
}

func TestARequestWaitsForItsOwnRoutesLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		to := func(path string) *http.Request { return request(t.Context(), "http://example.com"+path) }
		tells := func(path string, fields ...string) {
			req := to(path)
			require.NoError(t, l.pacer.WaitAtMost(req, time.Hour))
			l.observes(req, 200, fields...)
		}
		tells("/users/7/orders", window(9, 60)...)
		assert.Equal(t, 6*time.Second, l.advertised.WouldWait(to("/users/8/name")), "an identifier does not count")
		assert.Zero(t, l.advertised.WouldWait(to("/users/anna")))
		for _, name := range []string{"b", "c", "d", "e", "f", "g", "h"} {
			tells("/users/"+name, window(9, 60)...)
		}
		assert.Equal(t, 6*time.Second, l.advertised.WouldWait(to("/orders/x")), "all eight routes announced the limit")
		tells("/health")
		assert.Zero(t, l.advertised.WouldWait(to("/health")))
		assert.Zero(t, l.advertised.WouldWait(to("/orders/y")), "not all routes have the limit any more")
		assert.Equal(t, 6*time.Second, l.advertised.WouldWait(to("/users/b")))
	})
}

func TestRoutesAndPoliciesOfAKeyAreBounded(t *testing.T) {
	pacer := &pace.Advertised{}
	for i := range 5000 {
		req := request(t.Context(), "http://example.com/"+fmt.Sprintf("%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676))
		require.NoError(t, pacer.WaitAtMost(req, time.Hour))
		h := http.Header{
			"X-Ratelimit-Limit": {strconv.Itoa(1000 + i)}, "X-Ratelimit-Remaining": {"1000"},
			"X-Ratelimit-Reset": {"3600"},
		}
		pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200, Header: h}})
	}
	routes, policies := pacer.Sizes(get())
	assert.Equal(t, 256, routes)
	assert.LessOrEqual(t, policies, 256)
	assert.Positive(t, policies)
}

// A wrapper may pass Wait a copy of the request.
func TestObserveAcceptsACopyOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for range 1000 {
			req := get()
			require.NoError(t, l.pacer.WaitAtMost(req.WithContext(context.WithoutCancel(req.Context())), time.Hour))
			l.observes(req, 200, window(9, 60)...)
		}
		l.waits(6 * time.Second)
	})
}

func TestTenThousandInFlightAreObservedInLinearTime(t *testing.T) {
	testenv.NeedLong(t)
	took := func(n int) time.Duration {
		pacer := &pace.Advertised{}
		reqs := make([]*http.Request, n)
		for i := range reqs {
			reqs[i] = get()
			require.NoError(t, pacer.WaitAtMost(reqs[i], time.Hour))
		}
		h := http.Header{
			"X-Ratelimit-Limit": {"1000000"}, "X-Ratelimit-Remaining": {"999999"},
			"X-Ratelimit-Reset": {"3600"},
		}
		start := time.Now()
		for _, req := range reqs {
			pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200, Header: h}})
		}
		return time.Since(start)
	}
	took(1000)
	few, many := took(10_000), took(100_000)
	t.Logf("10,000: %v, 100,000: %v", few, many)
	assert.Less(t, many, 40*few)
}

// Forgetting a route with requests in flight must not count its policies twice.
func TestForgettingARouteKeepsSharedPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // because a stall would use up the wait at the end
		pacer := &pace.Advertised{}
		var reqs []*http.Request
		for i := range 2000 {
			req := request(t.Context(), "http://example.com/"+fmt.Sprintf("%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676))
			require.NoError(t, pacer.WaitAtMost(req, time.Hour))
			reqs = append(reqs, req)
		}
		for _, last := range []bool{false, true} {
			for i, req := range reqs {
				if last {
					require.NoError(t, pacer.WaitAtMost(req, 0))
				}
				pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200, Header: http.Header{
					"X-Ratelimit-Limit": {"100000"}, "X-Ratelimit-Remaining": {strconv.Itoa(60_000 - i)},
					"X-Ratelimit-Reset": {"3600"},
				}}})
			}
		}
		routes, policies := pacer.Sizes(get())
		assert.Equal(t, 2000, routes, "all had requests in flight")
		assert.Equal(t, 1, policies)
		assert.Positive(t, pacer.WouldWait(request(t.Context(), "http://example.com/new")), "all routes announced it")
		for i := range 2000 {
			req := request(t.Context(), "http://example.com/x"+fmt.Sprintf("%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676))
			require.NoError(t, pacer.WaitAtMost(req, 0))
			pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200, Header: http.Header{
				"X-Ratelimit-Limit": {"100000"}, "X-Ratelimit-Remaining": {"50000"}, "X-Ratelimit-Reset": {"3600"},
			}}})
		}
		routes, policies = pacer.Sizes(get())
		assert.Equal(t, 256, routes)
		assert.Equal(t, 1, policies)
	})
}

// A server is wrong once.
func TestTheNextAnswerReplacesABogusOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(50, 86400)...)
		l.at(time.Minute)
		l.sends(window(60, 60)...)
		l.waits(60 * time.Second / 61)
		for left := 59; left > 50; left-- {
			req := get()
			require.NoError(t, l.pacer.WaitAtMost(req, time.Hour))
			l.observes(req, 200, window(left, left)...)
		}
		assert.Less(t, time.Since(l.start), 75*time.Second)
	})
}

// After the end of a period the remainder is unknown, and probably not zero.
func TestNothingIsRefusedAfterThePeriodEnds(t *testing.T) {
	for name, fields := range map[string][]string{
		"much was left": window(99, 60), "little was left": window(9, 60), "at once": window(9, 0),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{})
				l.sends(fields...)
				l.at(2 * time.Minute)
				for range 20 {
					require.NoError(t, l.pacer.WaitAtMost(get(), 500*ms))
				}
				assert.Zero(t, time.Since(l.start)-2*time.Minute)
			})
		})
	}
}

// Nothing is left for a day, and the waiters may wait for two.
func TestWaitersInLineSendProbes(t *testing.T) {
	for name, fields := range map[string][]string{
		"nothing is left":    window(0, 86400),
		"a policy, no state": {"RateLimit-Policy", `"a";q=1;w=86400`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{})
				l.sends(fields...)
				for minute := 1; minute <= 3; minute++ {
					req := get()
					require.NoError(t, l.pacer.WaitAtMost(req, 48*time.Hour))
					assert.Equal(t, time.Duration(minute)*time.Minute, time.Since(l.start))
					l.observes(req, 429, fields...)
				}
			})
		})
	}
}

// A request that needs two limits is not overtaken forever by those that need one of
// them.
func TestAWaiterForTwoLimitsIsNotOvertakenForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Advertised{Key: func(*http.Request) string { return "one" }}
		var mu sync.Mutex
		left := map[string]int{"a": 400, "b": 400}
		start := time.Now()
		state := func(name string) string {
			return fmt.Sprintf("%q;r=%d;t=%d", name, left[name], 1000-int(time.Since(start).Seconds()))
		}
		route := map[string][]string{"/a": {"a"}, "/b": {"b"}, "/ab": {"a", "b"}}
		send := func(path string) time.Duration {
			req := request(t.Context(), "http://example.com"+path)
			start := time.Now()
			if !assert.NoError(t, pacer.WaitAtMost(req, time.Hour)) {
				return 0
			}
			took := time.Since(start)
			var states []string
			mu.Lock()
			for _, name := range route[path] {
				left[name]--
				states = append(states, state(name))
			}
			mu.Unlock()
			pacer.Observe(heed.Attempt{Request: req, Took: ms, Response: &http.Response{StatusCode: 200, Header: http.Header{
				"Ratelimit": {strings.Join(states, ", ")}, "Ratelimit-Policy": {`"a";q=1000;w=1000, "b";q=1000;w=1000`},
			}}})
			return took
		}
		send("/a")
		time.Sleep(time.Second)
		send("/b")
		send("/ab")
		var wg sync.WaitGroup
		for _, path := range []string{"/a", "/b", "/a", "/b"} {
			wg.Go(func() {
				for time.Since(start) < 200*time.Second {
					send(path)
				}
			})
		}
		var longest time.Duration
		for time.Since(start) < 200*time.Second {
			longest = max(longest, send("/ab"))
		}
		wg.Wait()
		assert.Less(t, longest, 30*time.Second)
	})
}

// GitHub's search is used up, and a Queue also has core requests.
func TestAQueueHasALineForEachAdvertisedRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Advertised{}
		q := &pace.Queue{Pacer: pacer}
		search := func() *http.Request { return request(t.Context(), "https://api.github.com/search/issues") }
		first := search()
		require.NoError(t, q.Wait(first))
		q.Observe(heed.Attempt{Request: first, Response: &http.Response{StatusCode: 200, Header: http.Header{
			"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"},
			"X-Ratelimit-Resource": {"search"},
		}}})
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, q.WaitAtMost(search(), time.Hour)) })
		synctest.Wait()
		assert.NoError(t, q.WaitAtMost(request(t.Context(), "https://api.github.com/repos/x/y"), 0))
		wg.Wait()
	})
}

// A request of unknown cost does not delay those of known cost.
func TestUnknownCostsDoNotDelayKnownOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		fields := []string{
			"X-RateLimit-Limit-Tokens", "2000", "X-RateLimit-Remaining-Tokens", "599",
			"X-RateLimit-Reset-Tokens", "60s",
		}
		l.sends(fields...)
		known := request(pace.WithCost(t.Context(), "tokens", 100), "http://example.com/")
		l.wg.Go(func() {
			require.NoError(t, l.pacer.Wait(known))
			assert.Equal(t, 10*time.Second, time.Since(l.start))
		})
		for second := range 15 {
			l.at(time.Duration(second) * time.Second)
			require.NoError(t, l.pacer.WaitAtMost(get(), 0))
		}
		l.wg.Wait()
	})
}

// A cached response costs the server nothing.
func TestACachedAnswerReturnsItsUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(9, 60)...)
		for range 5 {
			req := get()
			require.NoError(t, l.pacer.WaitAtMost(req, 0))
			l.observes(req, 200, "X-From-Cache", "1", "RateLimit-Remaining", "0", "RateLimit-Reset", "60")
		}
		l.waits(6 * time.Second)
	})
}

// Two processes with an Advertised each share a limit without knowing of each other. Of
// eight, a third of the requests would be refused: they need a Shared.
func TestTwoProcessesOnOneBucketAreSeldomRefused(t *testing.T) {
	const processes = 2
	for _, p := range []quota.Policy{
		{Quota: 600, Window: time.Minute, Burst: 20},
		{Quota: 100, Window: time.Second, Burst: 20},
		{Quota: 60, Window: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(fakeStart)
			limiter, err := serverside.New(paired(0, p))
			require.NoError(t, err)
			srv := inProcess{
				limiter.Wrap(
					http.HandlerFunc(
						func(_ http.ResponseWriter, r *http.Request) { sleeps(r.Context(), 20*ms) },
					),
				),
			}
			all := &count{}
			const during = 2 * time.Minute
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(during, cancel)
			var wg sync.WaitGroup
			for range processes {
				client := &http.Client{Transport: &heed.Transport{
					Base: counted{all, srv}, Pacer: &pace.Advertised{},
					Retry: heed.RetryPolicy{MaxWait: tenMinutes, MaxElapsed: -1},
				}}
				for range 10 {
					wg.Go(func() {
						for {
							resp, err := client.Do(request(ctx, "http://example.com/"))
							if err != nil {
								assert.ErrorIs(t, err, context.Canceled)
								return
							}
							resp.Body.Close()
						}
					})
				}
			}
			wg.Wait()
			perMinute := p.Quota * int64(time.Minute/p.Window)
			t.Logf(
				"%d in %v, burst %d: %.2f %% refused, %.0f %% used", p.Quota, p.Window, p.Burst,
				100*all.share(), 100*used(perMinute, during, all),
			)
			assert.LessOrEqual(t, all.share(), 0.05, p)
			assert.GreaterOrEqual(t, used(perMinute, during, all), 0.95, p)
		})
	}
}
