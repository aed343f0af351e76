package pace_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// tokens returns the fields of 1,000 tokens, all back after reset.
func tokens(left int, reset time.Duration) []string {
	return []string{
		"X-RateLimit-Limit-Tokens", "1000", "X-RateLimit-Remaining-Tokens", strconv.Itoa(left),
		"X-RateLimit-Reset-Tokens", reset.String(),
	}
}

// spread returns the wait for n tokens if left are spread over a minute.
func spread(n, left int) time.Duration {
	return time.Duration(float64(n) / float64(left+1) * 60 * float64(time.Second))
}

// Answers of one moment, one after the other, and how long the next request waits.
func TestACostIsLearntFromWhatIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		left []int // after each answer
		cost int
	}{
		"all that was used":                    {[]int{700}, 300},
		"not if others used most of it":        {[]int{500}, 0},
		"the same again":                       {[]int{900, 800, 700}, 100},
		"more: up by a quarter":                {[]int{900, 700}, 126},
		"a little more":                        {[]int{700, 399}, 301},
		"less: down by a 36th":                 {[]int{900, 880}, 0}, // more than three quarters are left
		"less, and less than that is left":     {[]int{700, 690}, 292},
		"a little less":                        {[]int{700, 401}, 299},
		"nothing says nothing":                 {[]int{700, 700, 700}, 300},
		"but is averaged with what is charged": {[]int{700, 700, 100}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{})
				for _, left := range test.left {
					l.sends(tokens(left, time.Minute)...)
				}
				left := test.left[len(test.left)-1]
				if want := spread(test.cost, left); test.cost <= left {
					assert.InDelta(t, want, l.advertised.WouldWait(get()), float64(10*ms))
				} else {
					assert.GreaterOrEqual(t, l.advertised.WouldWait(get()), time.Minute)
				}
			})
		})
	}
}

func TestWhoKnowsTheCostSaysIt(t *testing.T) {
	const url = "https://api.openai.com/v1/chat/completions"
	post := func(body string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
		require.NoError(t, err)
		return req
	}
	long := `{"model":"m","messages":["` + strings.Repeat("a", 300) + `"],"max_tokens":10}`
	for name, test := range map[string]struct {
		req  *http.Request
		cost func(*http.Request, string) int64
		want int
	}{
		"nobody":                   {post(`{"model":"m"}`), nil, 300},
		"WithCost":                 {post(`{"model":"m"}`).WithContext(pace.WithCost(t.Context(), "tokens", 50)), nil, 50},
		"Cost":                     {post(`{"model":"m"}`), func(*http.Request, string) int64 { return 40 }, 40},
		"max_tokens":               {post(`{"model":"m","max_tokens":30}`), nil, 39},
		"max_tokens and a prompt":  {post(long), nil, 10 + len(long)/3},
		"max_tokens above it":      {post(`{"model":"m","max_tokens":900}`), nil, 300},
		"another model's requests": {post(`{"model":"other"}`), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{Cost: test.cost})
				first := post(`{"model":"m"}`)
				require.NoError(t, l.pacer.WaitAtMost(first, 0))
				l.observes(first, 200, tokens(700, time.Minute)...)
				assert.InDelta(t, spread(test.want, 700), l.advertised.WouldWait(test.req), float64(10*ms))
			})
		})
	}
}

// Two requests are in flight, and the second one is answered first. Both are charged when
// they start, or both when they end.
func TestACostIsAveragedOverRequestsInFlight(t *testing.T) {
	for _, left := range [][2]int{{600, 700}, {700, 600}} {
		synctest.Test(t, func(t *testing.T) {
			l := newAdvertisedTimeline(t, &pace.Advertised{})
			l.sends(tokens(800, time.Minute)...)
			a := get()
			require.NoError(t, l.pacer.WaitAtMost(a, 0))
			l.at(ms)
			b := get()
			require.NoError(t, l.pacer.WaitAtMost(b, 0))
			l.at(2 * ms)
			l.observes(b, 200, tokens(left[0], time.Minute)...)
			l.observes(a, 200, tokens(left[1], time.Minute)...)
			l.at(3 * ms)
			l.sends(tokens(500, time.Minute)...)
			// 200, then three requests for 300: 6/36 less
			assert.InDelta(t, spread(194, 500), l.advertised.WouldWait(get()), float64(300*ms))
		})
	}
}

// Requests of known cost, and those of a new period, say nothing about the unknown cost.
func TestOtherChargesAreNotLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(tokens(700, time.Minute)...)
		known := request(pace.WithCost(t.Context(), "tokens", 100), "http://example.com/")
		require.NoError(t, l.pacer.WaitAtMost(known, 0))
		l.observes(known, 200, tokens(600, time.Minute)...)
		l.sends(tokens(300, time.Minute)...)
		assert.InDelta(t, spread(300, 300), l.advertised.WouldWait(get()), float64(10*ms))
		l.at(time.Minute)
		l.sends(tokens(290, time.Minute)...)
		assert.InDelta(t, 60540*ms, l.advertised.WouldWait(get()), float64(10*ms), "300 of the next period")
	})
}

// Those that were sent before anything was known cost as much.
func TestRequestsInFlightAreEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		first := get()
		require.NoError(t, l.pacer.WaitAtMost(first, 0))
		l.goes()
		l.observes(first, 200, tokens(700, time.Minute)...)
		assert.InDelta(t, spread(300, 400), l.advertised.WouldWait(get()), float64(10*ms))
	})
}

func TestAnEstimateRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(tokens(700, time.Minute)...)
		l.sends(tokens(400, time.Minute)...)
		l.joins()
		l.sends(tokens(100, time.Minute)...)
		l.sends(tokens(1, time.Minute)...)
		l.goes()
		overdueError(t, l.pacer.WaitAtMost(get(), 0))
		l.wg.Wait()
	})
}

// Nothing says that it is a bucket, but the time until it is full is proportional to what is
// missing.
func TestABucketIsFoundByItsReset(t *testing.T) {
	for name, test := range map[string]struct {
		resets []time.Duration // with 900, 800 and 50 left
		wait   time.Duration
	}{
		"a bucket":             {[]time.Duration{6 * time.Second, 12 * time.Second, 57 * time.Second}, 3060 * ms}, // for 51 of 100
		"rounded up":           {[]time.Duration{6 * time.Second, 12 * time.Second, 58900 * ms}, 3060 * ms},
		"a window":             {[]time.Duration{60 * time.Second, 57 * time.Second, 54 * time.Second}, 56940 * ms},
		"a window after all":   {[]time.Duration{6 * time.Second, 12 * time.Second, 30 * time.Second}, 32940 * ms},
		"more than it ever is": {[]time.Duration{6 * time.Second, 12 * time.Second, 70 * time.Second}, 73430 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{})
				for i, left := range []int{900, 800, 50} {
					l.at(time.Duration(i) * ms)
					l.sends(tokens(left, test.resets[i])...)
				}
				req := request(pace.WithCost(t.Context(), "tokens", 100), "http://example.com/")
				assert.Equal(t, test.wait, l.advertised.WouldWait(req).Round(10*ms))
			})
		})
	}
}

func TestADebtOfABucketIsRepaidFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for i, reset := range []time.Duration{6 * time.Second, 12 * time.Second, 66 * time.Second} {
			l.at(time.Duration(i) * ms)
			l.sends(tokens([]int{900, 800, 0}[i], reset)...)
		}
		req := request(pace.WithCost(t.Context(), "tokens", 99), "http://example.com/")
		assert.InDelta(t, 12*time.Second, l.advertised.WouldWait(req), float64(10*ms))
	})
}

// Until something is answered, few go.
func TestTheFirstRequestsOfAKeyWaitForAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		how   func(l *advertisedTimeline, first *http.Request)
		want  []time.Duration // when each of six more goes
	}{
		"never": {0, nil, []time.Duration{1000 * ms, 2000 * ms, 2000 * ms, 3000 * ms, 3000 * ms, 3000 * ms}},
		"after 2.5 s": {2500 * ms, func(l *advertisedTimeline, first *http.Request) { l.observes(first, 200) },
			[]time.Duration{1000 * ms, 2000 * ms, 2000 * ms, 2500 * ms, 2500 * ms, 2500 * ms}},
		"refused": {1500 * ms, func(l *advertisedTimeline, first *http.Request) { l.observes(first, 429) },
			[]time.Duration{1000 * ms, 2000 * ms, 2000 * ms, 3000 * ms, 3000 * ms, 3000 * ms}},
		"as many as are left": {500 * ms,
			func(l *advertisedTimeline, first *http.Request) { l.observes(first, 200, tokens(501, time.Second)...) },
			[]time.Duration{1490 * ms, 1500 * ms, 2500 * ms, 3500 * ms, 4500 * ms, 5500 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{})
				first := get()
				require.NoError(t, l.pacer.Wait(first))
				var waiting []*result
				for range test.want {
					waiting = append(waiting, l.joins())
				}
				if test.how != nil {
					l.at(test.after)
					test.how(l, first)
				}
				l.wg.Wait()
				var got []time.Duration
				for _, w := range waiting {
					require.NoError(t, w.err)
					got = append(got, w.at.Round(10*ms))
				}
				slices.Sort(got)
				assert.Equal(t, test.want, got)
			})
		})
	}
}

func TestOneAfterTheOtherNoneWaitsForAFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for range 3 {
			for _, a := range []heed.Attempt{
				{Request: get(), Err: heed.ErrNotSent},
				{Request: get(), Err: errGone},
				{Request: get(), Response: &http.Response{StatusCode: 429}},
			} {
				require.NoError(t, l.pacer.Wait(a.Request))
				l.pacer.Observe(a)
			}
			require.NoError(t, l.pacer.Wait(get()))
			gone := l.joins()
			gone.cancel(errGone)
			l.wg.Wait()
			l.givesBack()
		}
		assert.Zero(t, time.Since(l.start))
		l.goes()
		l.goes() // what cannot wait does not
	})
}
