package testserver_test

import (
	"fmt"
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

// A rewriter is a proxy that changes response headers.
type rewriter struct {
	base    http.RoundTripper
	rewrite func(http.Header)
}

func (r rewriter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.base.RoundTrip(req)
	if err == nil {
		r.rewrite(resp.Header)
	}
	return resp, err
}

func asDate(h http.Header) {
	wait, ok := ratelimit.Wait(429, http.Header{"Retry-After": h["Retry-After"]}, time.Time{})
	if !ok {
		return
	}
	sent, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		sent = time.Now()
	}
	h.Set("Retry-After", sent.Add(wait).UTC().Format(http.TimeFormat))
}

var (
	matrixStyles = map[string]ratelimit.Style{
		"Draft11": ratelimit.Draft11, "XRateLimit": ratelimit.XRateLimit, "XRateLimitDelta": ratelimit.XRateLimitDelta,
		"Draft07": ratelimit.Draft07, "Draft06": ratelimit.Draft06, "None": ratelimit.None,
		"Draft11+XRateLimit": ratelimit.Draft11 | ratelimit.XRateLimit,
	}
	matrixPolicies = map[string]quota.Policy{
		"TokenBucket":   {Quota: 3, Window: 10 * time.Second},
		"LeakyBucket":   {Quota: 3, Window: 10 * time.Second, Burst: 2, Algorithm: quota.LeakyBucket},
		"FixedWindow":   {Quota: 3, Window: 10 * time.Second, Algorithm: quota.FixedWindow},
		"SlidingWindow": {Quota: 3, Window: 10 * time.Second, Algorithm: quota.SlidingWindow},
		"SlidingLog":    {Quota: 3, Window: 10 * time.Second, Algorithm: quota.SlidingLog},
	}
	matrixProxies = map[string]func(http.Header){
		"seconds":  func(http.Header) {},
		"a date":   asDate,
		"stripped": func(h http.Header) { h.Del("Retry-After") },
	}
)

// Whatever the server counts by, however it says so, and whatever a proxy removes: a client that
// obeys is admitted at its first retry, and wastes no request.
func TestAnObedientClientIsAdmittedAtTheFirstRetry(t *testing.T) {
	for styleName, style := range matrixStyles {
		for algorithm, policy := range matrixPolicies {
			for proxy, rewrite := range matrixProxies {
				if style == ratelimit.None && proxy == "stripped" {
					continue // the client gets no hint
				}
				t.Run(strings.Join([]string{styleName, algorithm, proxy}, " "), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { admittedAtTheFirstRetry(t, style, policy, rewrite) })
				})
			}
		}
	}
}

func admittedAtTheFirstRetry(t *testing.T, style ratelimit.Style, policy quota.Policy, rewrite func(http.Header)) {
	time.Sleep(321 * time.Millisecond)
	limiter, err := serverside.New(serverside.Config{Style: style, Audit: func(serverside.Event) {},
		Rules: []serverside.Rule{{Policies: []quota.Policy{policy}}}})
	require.NoError(t, err)
	srv := testserver.NewLimited(t, limiter.Wrap)
	c := &http.Client{Transport: &heed.Transport{Base: rewriter{srv.Transport(), rewrite}}}
	const requests = 8
	together := 1
	if policy.Algorithm == quota.LeakyBucket { // a single waiting caller never exceeds the limit
		together = 4
	}
	for first := 0; first < requests; first += together {
		var all sync.WaitGroup
		for i := range together {
			all.Go(func() { assert.Equal(t, 200, send(t, c, http.MethodPut, srv.URL, fmt.Sprint(first+i))) })
		}
		all.Wait()
		if together > 1 {
			time.Sleep(2 * policy.Window) // until the bucket is empty, so that one is refused each time
		}
	}
	attempts, refused := perRequest(srv.Log())
	assert.Len(t, attempts, requests)
	for id, n := range attempts {
		assert.LessOrEqual(t, n, 2, "request %s was refused more than once", id)
	}
	assert.Positive(t, refused, "the limit was reached")
	if style == ratelimit.None { // it breaks clauses for servers
		assert.NoError(t, contract.Check(srv.Log(), contract.Client()...))
		return
	}
	srv.Check(t)
}

// perRequest counts the attempts of each request, and the refusals.
func perRequest(log []contract.Exchange) (attempts map[string]int, refused int) {
	attempts = make(map[string]int)
	for _, e := range log {
		attempts[e.Header.Get("X-Request-Id")]++
		if e.Status == http.StatusTooManyRequests {
			refused++
		}
	}
	return attempts, refused
}
