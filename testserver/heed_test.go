package testserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

// send sends a request with an X-Request-Id, so that all clauses apply.
func send(t testing.TB, c *http.Client, method, url, id string) int {
	req, err := http.NewRequest(method, url, strings.NewReader("body of "+id))
	if !assert.NoError(t, err) {
		return 0
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := c.Do(req)
	if !assert.NoError(t, err) {
		return 0
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(t, err)
	return resp.StatusCode
}

// applied returns the clauses that are applicable to log.
func applied(t testing.TB, log []contract.Exchange, clauses []contract.Clause) (ids []string) {
	for _, c := range clauses {
		breaches, applicable := c.Check(log)
		assert.Empty(t, breaches, c.ID)
		if applicable {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// heed's client and server together: fifty workers, ten requests a second.
func TestFiftyWorkersKeepTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter,
			err := serverside.New(serverside.Config{Rules: []serverside.Rule{{Policies: []quota.Policy{quota.PerSecond(10)}}}})
		require.NoError(t, err)
		srv := testserver.NewLimited(t, limiter.Wrap)
		c := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { assert.Equal(t, 200, send(t, c, "PUT", srv.URL, fmt.Sprint(i))) })
		}
		wg.Wait()
		srv.Check(t)
		assert.LessOrEqual(t, len(srv.Log()), 130)
		assert.Contains(t, applied(t, srv.Log(), contract.Client()), "client/cool-down")
	})
}

// usedUp has the fields of an exhausted quota.
func usedUp(limit, reset string) http.Header {
	return http.Header{"X-Ratelimit-Limit": {limit}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {reset}}
}

// The scripts have seconds and dates, 503s and 429s, lost and slow answers.
func TestHeedKeepsTheContractForEveryScript(t *testing.T) {
	date := func(d time.Duration) http.Header {
		return http.Header{"Retry-After": {time.Now().Add(d).UTC().Format(http.TimeFormat)}}
	}
	scripts := map[string]func() []testserver.Step{
		"429 for 60 s": func() []testserver.Step {
			return []testserver.Step{{Status: 429, RetryAfter: time.Minute,
				Header: usedUp("5", fmt.Sprint(time.Now().Unix()+60))}}
		},
		"429 for 47 s": func() []testserver.Step {
			return []testserver.Step{{Status: 429, RetryAfter: 47 * time.Second, Header: usedUp("100", "1744380060")}}
		},
		"429 until a date": func() []testserver.Step {
			return []testserver.Step{{Status: 429,
				Header: date(12 * time.Second)}}
		},
		"503 until a date": func() []testserver.Step {
			return []testserver.Step{{Status: 503,
				Header: date(12 * time.Second)}}
		},
		"503 for ever": func() []testserver.Step { return []testserver.Step{{Status: 503, Times: -1}} },
		"429 for ever": func() []testserver.Step {
			return []testserver.Step{{Status: 429, RetryAfter: 20 * time.Second, Times: -1}}
		},
		"429 for a day": func() []testserver.Step {
			return []testserver.Step{{Status: 429,
				RetryAfter: 24 * time.Hour}}
		},
		"429 without a hint": func() []testserver.Step { return []testserver.Step{{Status: 429, Times: 2}} },
		"a lost answer":      func() []testserver.Step { return []testserver.Step{{Drop: true}} },
		"slow, then broken": func() []testserver.Step {
			return []testserver.Step{{Delay: 5 * time.Second}, {Status: 502}, {Status: 504, Delay: time.Second}}
		},
	}
	for name, script := range scripts {
		for _, method := range []string{"PUT", "POST"} {
			t.Run(name+" "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(321 * time.Millisecond)
					srv := testserver.New(t, script()...)
					c := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
					for i := range 3 {
						req, err := http.NewRequest(method, srv.URL, strings.NewReader("x"))
						require.NoError(t, err)
						req.Header.Set("X-Request-Id", fmt.Sprint(i))
						if resp, err := c.Do(req); err == nil {
							resp.Body.Close()
						}
					}
					srv.Check(t)
				})
			})
		}
	}
}

// Every server clause is applicable to the log, and most client clauses.
func TestHeedAndItsServerCoverTheClauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(321 * time.Millisecond)
		limiter,
			err := serverside.New(serverside.Config{Rules: []serverside.Rule{{Policies: []quota.Policy{quota.PerMinute(6)}}}})
		require.NoError(t, err)
		srv := testserver.NewLimited(t, limiter.Wrap)
		c := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		for i := range 12 {
			require.Equal(t, 200, send(t, c, "PUT", srv.URL, fmt.Sprint(i)))
		}
		srv.Check(t)
		ids := applied(t, srv.Log(), contract.Server())
		assert.Len(t, ids, len(contract.Server()), "%q", ids)
		assert.Subset(t, applied(t, srv.Log(), contract.Client()),
			[]string{"client/wait-seconds", "client/cool-down", "client/attempts", "client/same-request"})
	})
}

func TestEveryStyleOfFieldsKeepsTheContract(t *testing.T) {
	for name, style := range map[string]ratelimit.Style{
		"default": 0, "Draft11": ratelimit.Draft11, "XRateLimit": ratelimit.XRateLimit,
		"XRateLimitDelta": ratelimit.XRateLimitDelta,
		"Draft07":         ratelimit.Draft07, "Draft06": ratelimit.Draft06,
		"Draft07 and XRateLimit":          ratelimit.Draft07 | ratelimit.XRateLimit,
		"Draft11, Draft06 and XRateLimit": ratelimit.Draft11 | ratelimit.Draft06 | ratelimit.XRateLimit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(321 * time.Millisecond)
				limiter, err := serverside.New(serverside.Config{Style: style, Rules: []serverside.Rule{
					{Name: "all", Policies: []quota.Policy{quota.PerMinute(7), quota.PerSecond(2)}},
					{Name: "part", Pattern: "/part", Policies: []quota.Policy{quota.PerHour(5)}},
				}})
				require.NoError(t, err)
				srv := testserver.NewLimited(t, limiter.Wrap)
				c := &http.Client{Transport: &heed.Transport{Base: srv.Transport(),
					Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: 10 * time.Hour}}}
				for i := range 10 {
					require.Equal(t, 200, send(t, c, "PUT", srv.URL+"/part", fmt.Sprint(i)))
					require.Equal(t, 200, send(t, c, "PUT", srv.URL+"/other", fmt.Sprint(i)))
				}
				srv.Check(t)
				assert.Subset(t, applied(t, srv.Log(), contract.Server()),
					[]string{"server/retry-after", "server/obeyed", "server/fields", "server/remaining", "server/denial-agrees"})
			})
		})
	}
}

// If units come back one by one, waiters are released at that rate. If a window comes back as a
// whole, they need not wait.
func TestTheLineIsReleasedAtTheAdvertisedRate(t *testing.T) {
	for _, test := range []struct {
		name, algorithm, state string
		least                  time.Duration // between two arrivals after the cool-down
		within                 time.Duration // for all arrivals
	}{
		{"a bucket", "token-bucket", `"api";r=0;t=1`, time.Second, 30 * time.Second},
		{"a window", "fixed-window", `"api";r=0;t=40`, 0, 15 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 40 * time.Second, Header: http.Header{
					"Ratelimit": {test.state}, "Ratelimit-Policy": {`"api";q=60;w=60;heed-algorithm=` + test.algorithm},
				}})
				c := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
				start := time.Now()
				var workers sync.WaitGroup
				for i := range 20 {
					workers.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						assert.Equal(t, 200, send(t, c, http.MethodPut, srv.URL, fmt.Sprint(i)))
					})
				}
				workers.Wait()
				var after []time.Duration
				for _, e := range srv.Log() {
					if at := e.Arrived.Sub(start); at >= 40*time.Second {
						after = append(after, at)
					}
				}
				require.Len(t, after, 20)
				for i := range after[1:] {
					assert.GreaterOrEqual(t, after[i+1]-after[i], test.least, "arrivals %d and %d", i, i+1)
				}
				assert.LessOrEqual(t, after[19]-after[0], test.within)
				srv.Check(t)
			})
		})
	}
}
