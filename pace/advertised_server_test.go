package pace_test

import (
	"context"
	"fmt"
	"net/http"
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
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

var styles = map[string]ratelimit.Style{
	"default":          0,
	"draft 11":         ratelimit.Draft11,
	"X-RateLimit":      ratelimit.XRateLimit,
	"X-RateLimitDelta": ratelimit.XRateLimitDelta,
	"draft 7":          ratelimit.Draft07,
	"draft 6":          ratelimit.Draft06,
}

// A count is what a server did with the requests of a client.
type count struct{ admitted, refused atomic.Int64 }

func (c *count) share() float64 {
	return float64(c.refused.Load()) / float64(max(1, c.admitted.Load()+c.refused.Load()))
}

func (c *count) RoundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	if err == nil {
		if resp.StatusCode == http.StatusTooManyRequests {
			c.refused.Add(1)
		} else {
			c.admitted.Add(1)
		}
	}
	return resp, err
}

type counted struct {
	*count
	next http.RoundTripper
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	return c.count.RoundTrip(c.next, req)
}

// fakeStart is after the start of a bubble's clock: a time when Unix times have ten
// digits and no window starts.
const fakeStart = 26*365*24*time.Hour + 12*time.Second + 345*ms

// tenMinutes is the length of the measurements whose results Advertised's doc states.
const tenMinutes = 10 * time.Minute

// shareQuota runs 50 workers against a quota, together with another client that sends
// perSecond requests a second without pacing.
func shareQuota(t *testing.T, cfg serverside.Config, all time.Duration, perSecond float64) (ours, theirs *count) {
	return shareQuotaAfter(t, cfg, 20*ms, all, perSecond)
}

// shareQuotaAfter is shareQuota with a server that answers after latency.
func shareQuotaAfter(
	t *testing.T, cfg serverside.Config, latency, all time.Duration, perSecond float64,
) (ours, theirs *count) {
	time.Sleep(fakeStart)
	limiter, err := serverside.New(cfg)
	require.NoError(t, err)
	srv := inProcess{limiter.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sleeps(r.Context(), latency)
	}))}
	ours, theirs = new(count), new(count)
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(all, cancel)
	client := &http.Client{Transport: &heed.Transport{
		Base:  counted{ours, srv},
		Pacer: &pace.Advertised{},
		Retry: heed.RetryPolicy{MaxWait: tenMinutes, MaxElapsed: -1},
	}}
	var wg sync.WaitGroup
	call := func(client *http.Client) error {
		resp, err := client.Do(request(ctx, "http://example.com/"))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	require.NoError(t, call(client))
	for range 50 {
		wg.Go(func() {
			err := call(client)
			for err == nil {
				err = call(client)
			}
			assert.Equal(t, all, time.Since(start), "%v", err)
		})
	}
	if perSecond > 0 {
		stranger := &http.Client{Transport: counted{theirs, srv}}
		tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			wg.Go(func() { _ = call(stranger) })
		}
	}
	wg.Wait()
	return ours, theirs
}

// paired returns a server's Config with one policy.
func paired(style ratelimit.Style, p quota.Policy) serverside.Config {
	return serverside.Config{
		Style: style,
		Rules: []serverside.Rule{{Policies: []quota.Policy{p}}},
		Audit: func(serverside.Event) {}, // because count counts the denials
	}
}

// used returns the part of the quota that was admitted.
func used(perMinute int64, all time.Duration, counts ...*count) (part float64) {
	for _, c := range counts {
		part += float64(c.admitted.Load()) / (float64(perMinute) * all.Minutes())
	}
	return part
}

// A figure is what Advertised's doc states for an algorithm.
type figure struct{ used, refused, usedWithStranger, refusedWithStranger float64 }

// figures hold for styles that announce how units come back and when the next one does;
// untimed for Draft07, which announces how, but only when all are back; unsaid for the
// others. Algorithms missing from the last two are as in figures.
var (
	figures = map[quota.Algorithm]figure{
		quota.TokenBucket:   {0.95, 0, 0.95, 0.01},
		quota.LeakyBucket:   {0.95, 0, 0.95, 0.01},
		quota.FixedWindow:   {0.95, 0, 0.95, 0.01},
		quota.SlidingWindow: {0.93, 0, 0.93, 0.02},
		quota.SlidingLog:    {0.95, 0, 0.95, 0.17}, // 7 % on average, with a standard deviation of 1.4 %
	}
	untimed = map[quota.Algorithm]figure{
		quota.SlidingWindow: {0.55, 0, 0.70, 0.02},
		quota.SlidingLog:    {0.70, 0, 0.80, 0.02},
	}
	unsaid = map[quota.Algorithm]figure{
		quota.LeakyBucket:   {0.90, 0, 0.95, 0.01},
		quota.SlidingWindow: {0.80, 0, 0.80, 0.02},
		quota.SlidingLog:    {0.70, 0, 0.75, 0.02},
	}
)

// figureOf returns the figure for a server with this style and algorithm.
func figureOf(style ratelimit.Style, a quota.Algorithm) figure {
	differ := unsaid
	switch style {
	case 0, ratelimit.Draft11:
		differ = nil
	case ratelimit.Draft07:
		differ = untimed
	}
	if f, ok := differ[a]; ok {
		return f
	}
	return figures[a]
}

func TestAdvertisedUsesTheQuotaWithoutRefusals(t *testing.T) {
	eachPairing(t, func(t *testing.T, cfg serverside.Config, want figure) {
		ours, _ := shareQuota(t, cfg, tenMinutes, 0)
		t.Logf("%.2f %% refused, %.0f %% used", 100*ours.share(), 100*used(60, tenMinutes, ours))
		assert.LessOrEqual(t, ours.share(), want.refused)
		assert.GreaterOrEqual(t, used(60, tenMinutes, ours), want.used)
	})
}

func TestFewRefusalsWithAnotherClientInTheQuota(t *testing.T) {
	eachPairing(t, func(t *testing.T, cfg serverside.Config, want figure) {
		ours, theirs := shareQuota(t, cfg, tenMinutes, 0.5)
		t.Logf("%.2f %% refused, %.0f %% used", 100*ours.share(), 100*used(60, tenMinutes, ours, theirs))
		assert.LessOrEqual(t, ours.share(), want.refusedWithStranger)
		assert.GreaterOrEqual(t, used(60, tenMinutes, ours, theirs), want.usedWithStranger)
	})
}

// eachPairing runs test with 60 a minute for each style and algorithm. Without -long it
// runs all algorithms with and without RateLimit-Policy, and one in each other style.
func eachPairing(t *testing.T, test func(*testing.T, serverside.Config, figure)) {
	for name, style := range styles {
		for a := range figures {
			if style != 0 && style != ratelimit.XRateLimit && a != quota.SlidingWindow && !testenv.Long() {
				continue
			}
			t.Run(fmt.Sprint(a, ", ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					test(t, paired(style, quota.Policy{Quota: 60, Window: time.Minute, Algorithm: a}), figureOf(style, a))
				})
			})
		}
	}
}

func TestAFastQuotaIsUsedWithoutRefusals(t *testing.T) {
	for a := range figures {
		for others, all := range map[float64]time.Duration{0: 2 * time.Minute, 5: 5 * time.Minute} {
			if testenv.Long() {
				all = tenMinutes
			}
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := shareQuota(
					t, paired(0, quota.Policy{Quota: 600, Window: time.Minute, Algorithm: a}), all, others,
				)
				t.Logf("%v: %.2f %% refused, %.0f %% used", a, 100*ours.share(), 100*used(600, all, ours, theirs))
				assert.LessOrEqual(t, ours.share(), others/5*0.02, a)
				assert.GreaterOrEqual(t, used(600, all, ours, theirs), 0.95-others/5*0.02, a)
			})
		}
	}
}

func TestSeveralPoliciesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := shareQuota(t, serverside.Config{Rules: []serverside.Rule{
			{Name: "short", Policies: []quota.Policy{{Name: "second", Quota: 5, Window: time.Second}}},
			{
				Name: "long",
				Policies: []quota.Policy{
					{Name: "minute", Quota: 60, Window: time.Minute, Algorithm: quota.FixedWindow},
				},
			},
		}}, tenMinutes, 0)
		assert.Zero(t, ours.refused.Load())
		assert.GreaterOrEqual(t, used(60, tenMinutes, ours), 0.95)
	})
}

// A leaky bucket delays early requests at the server.
func TestALeakyBucketIsNotFilled(t *testing.T) {
	for _, others := range []float64{0, 0.5} {
		synctest.Test(t, func(t *testing.T) {
			cfg := paired(0, quota.Policy{Quota: 60, Window: time.Minute, Algorithm: quota.LeakyBucket})
			var (
				mu      sync.Mutex
				longest time.Duration
			)
			after := time.Now().Add(fakeStart + time.Minute)
			cfg.Rules[0].Cost = func(r *http.Request) int64 {
				came := time.Now()
				context.AfterFunc(r.Context(), func() {
					mu.Lock()
					defer mu.Unlock()
					if came.After(after) {
						longest = max(longest, time.Since(came))
					}
				})
				return 1
			}
			shareQuota(t, cfg, tenMinutes, others)
			synctest.Wait() // for the answers to the last ones
			t.Logf("%v", longest)
			assert.Positive(t, longest)
			assert.Less(t, longest, 10*time.Second)
		})
	}
}
