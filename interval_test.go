package heed_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// denial is a 429 with Retry-After, RateLimit-Policy and RateLimit.
func denial(took time.Duration, seconds, policies, states string) reply {
	return reply{status: 429, took: took,
		header: []string{"Retry-After", seconds, "RateLimit-Policy", policies, "RateLimit", states}}
}

// bucketPolicy is a RateLimit-Policy that declares a token bucket.
func bucketPolicy(name string, quota, window int) string {
	return fmt.Sprintf(`"%s";q=%d;w=%d;heed-algorithm=token-bucket`, name, quota, window)
}

// If several policies refuse, all wait for the last one, and are released at the longest interval
// that a policy declares with its bucket.
func TestTheLongestBucketIntervalApplies(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	slow := denial(100*ms, "2", bucketPolicy("slow", 30, 60), `"slow";r=0;t=2`)
	fast := denial(100*ms, "10", bucketPolicy("fast", 600, 60), `"fast";r=0;t=1`)
	window := denial(100*ms, "20", `"window";q=60;w=60`, `"window";r=0;t=20`)
	later := func(r reply) reply { r.took += 400 * ms; return r }
	for name, test := range map[string]struct {
		replies    []reply
		end, every time.Duration
	}{
		"one":                             {[]reply{slow}, 2100 * ms, 2 * s},
		"a longer wait and a shorter one": {[]reply{fast, later(slow)}, 10100 * ms, 2 * s},
		"a shorter wait and a longer one": {[]reply{slow, later(fast)}, 10500 * ms, 2 * s},
		"a window, which has no interval": {[]reply{window, later(fast)}, 20100 * ms, 100 * ms},
		"a window that is refused later":  {[]reply{fast, later(window)}, 20500 * ms, 100 * ms},
		"one that may be a window": {
			[]reply{denial(100*ms, "2", `"x";q=30;w=60`, `"x";r=0;t=2`)}, 2100 * ms, 0},
		"one that denies, and one that does not": {
			[]reply{denial(100*ms, "2", bucketPolicy("fast", 600, 60)+", "+bucketPolicy("slow", 30, 60),
				`"fast";r=0;t=1, "slow";r=1;t=2`)}, 2100 * ms, 100 * ms},
		"two at once": {
			[]reply{denial(100*ms, "2", bucketPolicy("fast", 600, 60)+", "+bucketPolicy("slow", 30, 60),
				`"fast";r=0;t=1, "slow";r=0;t=2`)}, 2100 * ms, 2 * s},
		"one with a new limit": {
			[]reply{slow, later(denial(100*ms, "2", bucketPolicy("slow", 60, 60), `"slow";r=0;t=1`))}, 2500 * ms, s},
		"one name in two partitions": {
			[]reply{denial(100*ms, "2", bucketPolicy("a", 30, 60), `"a";r=0;t=2;pk=:YQ==:`),
				later(denial(100*ms, "2", bucketPolicy("a", 60, 60), `"a";r=0;t=1;pk=:Yg==:`))}, 2500 * ms, 2 * s},
		"one of more than a minute": {
			[]reply{denial(100*ms, "2", bucketPolicy("day", 1, 999999999), `"day";r=0;t=1`)}, 2100 * ms, 0},
		"one of a minute": {
			[]reply{denial(100*ms, "2", bucketPolicy("x", 2, 120), `"x";r=0;t=1`)}, 2100 * ms, time.Minute},
		"tokens": {
			[]reply{denial(100*ms, "2", `"x";q=30;w=60;qu="tokens";heed-algorithm=token-bucket`, `"x";r=0;t=1`)}, 2100 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := &heed.LocalBoard{}
				tr := &heed.Transport{Base: newScript(test.replies...), Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				var all sync.WaitGroup
				start := time.Now()
				for range test.replies {
					all.Go(func() { assert.Equal(t, 429, status(t, tr, get(t.Context()))) })
					synctest.Wait()
				}
				all.Wait()
				time.Sleep(time.Until(start.Add(s)))
				wait, every, err := board.Read(t.Context(), key)
				assert.Equal(t, []any{test.end - s, test.every, nil}, []any{wait, every, err})
			})
		})
	}
}

// Policies that refused before the key was open must not slow the next cool-down.
func TestAnOldPolicyDoesNotAffectTheNextCoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		s := newScript(denial(0, "2", bucketPolicy("hour", 100, 3600), `"hour";r=0;t=36`),
			denial(0, "1", bucketPolicy("fast", 600, 60), `"fast";r=0;t=1`))
		tr := &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		_, every, _ := board.Read(t.Context(), key)
		assert.Equal(t, 36*time.Second, every)
		time.Sleep(time.Minute)
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		_, every, _ = board.Read(t.Context(), key)
		assert.Equal(t, 100*time.Millisecond, every)
	})
}

// A policy that cannot be true, or that another request met, must not slow a healthy server's
// clients.
func TestAnImplausibleIntervalIsIgnored(t *testing.T) {
	for _, policy := range []string{
		`"x";q=1;w=999999999`, bucketPolicy("x", 1, 999999999), bucketPolicy("x", 1, 86400), `"x";q=1;w=61`,
		`"x";q=3;w=9000`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(denial(0, "1", policy, `"x";r=0;t=1`), ok)
			tr := &heed.Transport{Base: s}
			assert.Equal(t, 200, status(t, tr, get(t.Context())))
			for range 100 {
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, get(t.Context())), policy)
				assert.LessOrEqual(t, time.Since(start), time.Second, policy)
			}
		})
	}
}

// Requests that cannot wait for their release fail at once, and none waits longer than MaxWait and
// the jitter window.
func TestAConfirmedIntervalNeverExceedsMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(denial(0, "1", bucketPolicy("x", 2, 60), `"x";r=0;t=1`), ok)}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		done, refused := 0, 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				start := time.Now()
				resp, err := tr.RoundTrip(get(t.Context()))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					var overdue *heed.OverdueError
					require.ErrorAs(t, err, &overdue)
					assert.Equal(t, "RetryPolicy.MaxWait", overdue.Limit)
					assert.Zero(t, time.Since(start))
					refused++
					return
				}
				resp.Body.Close()
				assert.LessOrEqual(t, time.Since(start), time.Minute+300*time.Millisecond)
				done++
			})
		}
		all.Wait()
		assert.Equal(t, []int{2, 8}, []int{done, refused}, "at 30 s and at 60 s")
	})
}

// inMemory calls a handler without a network.
type inMemory struct{ http.Handler }

func (h inMemory) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Result(), nil
}

// limiting is a server with heed's limiter and one policy for all requests.
func limiting(t *testing.T, policy quota.Policy) http.RoundTripper {
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
		Name: "api", Pattern: "/", Key: serverside.KeyFunc(func(*http.Request) string { return "all" }),
		Policies: []quota.Policy{policy},
	}}})
	require.NoError(t, err)
	return inMemory{limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
}

// A counter counts admitted and refused requests from start on.
type counter struct {
	base  http.RoundTripper
	start time.Time

	mu                sync.Mutex
	admitted, refused int
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case time.Now().Before(c.start):
	case resp.StatusCode == 200:
		c.admitted++
	default:
		c.refused++
	}
	return resp, err
}

// Fifty workers without a pause use the limit of heed's own server.
func TestHeedsOwnServersLimitIsUsed(t *testing.T) {
	for _, policy := range []quota.Policy{
		quota.PerSecond(20), quota.PerSecond(500), quota.PerSecond(2000),
		{Quota: 20, Window: time.Second, Burst: 4}, {Quota: 500, Window: time.Second, Burst: 100},
		{Quota: 2000, Window: time.Second, Burst: 400}, {Quota: 600, Window: time.Minute, Burst: 10},
	} {
		t.Run(fmt.Sprintf("%d in %v, %d at once", policy.Quota, policy.Window, policy.Burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const during = 6 * time.Second
				c := &counter{base: limiting(t, policy), start: time.Now().Add(time.Second)}
				_, lost := work(t, &heed.Transport{Base: c}, 50, 0, during)
				perSecond := float64(policy.Quota) / policy.Window.Seconds()
				used := float64(c.admitted) / perSecond / time.Since(c.start).Seconds()
				t.Logf("%.0f %% used, %d refused of %d", 100*used, c.refused, c.refused+c.admitted)
				assert.GreaterOrEqual(t, used, 0.85)
				assert.Zero(t, lost)
			})
		})
	}
}

// The window has just begun, whatever the one before said in its last seconds.
func TestABatchUsesAFreshWindowAtOnce(t *testing.T) {
	const quotaOf = 60
	for _, before := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 40 * time.Second} {
		t.Run(before.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := limiting(t, quota.Policy{Quota: quotaOf, Window: time.Minute, Algorithm: quota.FixedWindow})
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(2*time.Minute - before)))
				others := &heed.Transport{Base: base, Board: heed.NoBoard, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				for range quotaOf {
					require.Equal(t, 200, status(t, others, get(t.Context())))
				}
				start, tr := time.Now(), &heed.Transport{Base: base}
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
				}
				all.Wait()
				assert.LessOrEqual(t, time.Since(start), before+13*time.Second)
			})
		})
	}
}

// A sequential caller is not slowed while the server says that something is left.
func TestASequentialCallerUsesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := func(r int) reply {
			return reply{status: 200,
				header: []string{"RateLimit-Policy", bucketPolicy("x", 5, 60), "RateLimit", fmt.Sprintf(`"x";r=%d;t=12`, r)}}
		}
		s := newScript(denial(0, "12", bucketPolicy("x", 5, 60), `"x";r=0;t=12`), left(4), left(3), left(2), left(1),
			left(0), left(0))
		tr := &heed.Transport{Base: s}
		start := time.Now()
		for range 5 {
			assert.Equal(t, 200, status(t, tr, get(t.Context())))
		}
		between(t, 12*time.Second, time.Since(start), 16*time.Second)
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		between(t, 24*time.Second, time.Since(start), 28*time.Second) // one interval later
	})
}

// In real time, over a socket, where timers are late.
func TestHeedsOwnServersLimitIsUsedInRealTime(t *testing.T) {
	testenv.NeedLong(t)
	for _, perSecond := range []int64{20, 500, 2000} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			limiter := limiting(t, quota.PerSecond(perSecond)).(inMemory)
			srv := httptest.NewServer(limiter.Handler)
			defer srv.Close()
			inner := &http.Transport{MaxIdleConnsPerHost: 50}
			defer inner.CloseIdleConnections()
			var used float64
			for range 3 { // a busy machine may fail one try, but not three
				c := &counter{base: inner, start: time.Now().Add(time.Second)}
				tr := &heed.Transport{Base: c}
				_, lost := work(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
					out, err := http.NewRequestWithContext(req.Context(), "GET", srv.URL, nil)
					if err != nil {
						return nil, err
					}
					return tr.RoundTrip(out)
				}), 50, 0, 6*time.Second)
				used = float64(c.admitted) / float64(perSecond) / time.Since(c.start).Seconds()
				t.Logf("%.0f %% used, %d refused of %d, %d lost", 100*used, c.refused, c.refused+c.admitted, lost)
				if used >= 0.85 {
					break
				}
			}
			assert.GreaterOrEqual(t, used, 0.85)
		})
	}
}
