package pace_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// An adaptiveTimeline sends requests and reports their outcomes to the pacer.
type adaptiveTimeline struct {
	*timeline
	adaptive *pace.Adaptive
}

func newAdaptiveTimeline(t *testing.T, a *pace.Adaptive) *adaptiveTimeline {
	return &adaptiveTimeline{newTimeline(t, a), a}
}

// answered sends a request, after its wait, which is answered with status after took.
func (l *adaptiveTimeline) answered(status int, took time.Duration) {
	l.t.Helper()
	req := get()
	require.NoError(l.t, l.pacer.Wait(req))
	time.Sleep(took)
	l.pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: status}, Took: took})
}

func (l *adaptiveTimeline) refused(status int, field, value string) {
	l.t.Helper()
	req := get()
	require.NoError(l.t, l.pacer.Wait(req))
	time.Sleep(ms)
	l.pacer.Observe(
		heed.Attempt{
			Request: req, Response: &http.Response{StatusCode: status, Header: http.Header{field: {value}}},
			Took: ms,
		},
	)
}

func (l *adaptiveTimeline) limit() rate.Limit { return l.adaptive.Limit(get()) }

func TestAdaptiveDoublesUntilARefusalThenHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{})
		assert.Zero(t, l.limit())
		l.answered(200, ms)
		assert.EqualValues(t, 10, l.limit(), "no request had to wait")
		for _, want := range []rate.Limit{20, 40, 80} {
			l.answered(200, ms)
			assert.Equal(t, want, l.limit())
		}
		l.answered(429, ms)
		assert.EqualValues(t, 40, l.limit())
		l.answered(503, ms)
		assert.EqualValues(t, 40, l.limit(), "perhaps an outage")
		l.refused(503, "Retry-After", "1")
		assert.EqualValues(t, 20, l.limit())
	})
}

func TestRefusalsOfOneBurstHalveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{})
		for range 30 { // in 3 s, while the answers are in flight
			l.wg.Go(func() { l.answered(429, 10*time.Second) })
		}
		l.wg.Wait()
		assert.EqualValues(t, 5, l.limit())
		l.answered(429, time.Second)
		assert.EqualValues(t, 2.5, l.limit())
	})
}

func TestAfterManyRefusalsTheRateDoublesToHalfThenRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{Step: 2})
		for range 4 {
			l.answered(200, ms)
		}
		for _, want := range []rate.Limit{40, 20, 10, 5} {
			l.answered(429, ms)
			require.Equal(t, want, l.limit())
		}
		for _, want := range []rate.Limit{10, 20, 40} {
			l.answered(200, ms)
			require.Equal(t, want, l.limit())
		}
		for range 200 { // 5 s at 40 a second, and a little faster
			l.answered(200, ms)
		}
		require.InDelta(t, 40+2*4.5, float64(l.limit()), 0.5)
	})
}

func TestUndelayedRequestsDoNotRaiseTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{})
		for range 100 {
			l.answered(200, 100*ms)
		}
		assert.EqualValues(t, 10, l.limit())
	})
}

func TestAdaptiveKeepsBetweenMinAndMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{Min: 3, Max: 12})
		for range 20 {
			l.answered(200, ms)
		}
		assert.EqualValues(t, 12, l.limit())
		for range 20 {
			l.answered(429, ms)
		}
		assert.EqualValues(t, 3, l.limit())

		slow := newAdaptiveTimeline(t, &pace.Adaptive{Max: 0.01})
		slow.answered(429, ms)
		assert.EqualValues(t, 0.01, slow.limit(), "Min is at most Max")
	})
}

func TestErrorsAndUnsentRequestsLeaveTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{})
		for _, err := range []error{io.ErrUnexpectedEOF, heed.ErrNotSent, context.Canceled} {
			req := get()
			require.NoError(t, l.pacer.Wait(req))
			l.pacer.Observe(heed.Attempt{Request: req, Err: err})
		}
		assert.EqualValues(t, 10, l.limit())
		l.pacer.Observe(
			heed.Attempt{
				Request:  request(t.Context(), "http://other.example"),
				Response: &http.Response{StatusCode: 429},
			},
		)
	})
}

func TestAdaptiveReturnsUnusedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, &pace.Adaptive{})
		tl.goes()
		b := tl.joins()
		tl.waits(200 * ms)
		tl.givesBack()
		tl.wg.Wait()
		tl.admittedAt(0, b)
		tl.waits(100 * ms)
	})
}

func TestRefusedDecidesWhatARefusalIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{
			Refused: func(a heed.Attempt) bool { return a.Response.StatusCode == http.StatusBadRequest },
		})
		l.answered(429, ms)
		assert.EqualValues(t, 10, l.limit())
		l.answered(400, ms)
		assert.EqualValues(t, 5, l.limit())
	})
}

// A server that refuses everything for a while must not fail all waiters.
func TestWaitersSurviveASeriesOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdaptiveTimeline(t, &pace.Adaptive{Min: 1})
		for range 5 {
			l.answered(200, ms)
		}
		for range 150 { // 150 s at 1 a second
			l.wg.Go(func() {
				req := get()
				assert.NoError(t, l.adaptive.WaitAtMost(req, time.Minute))
				status := 429
				if time.Since(l.start) > 20*time.Second {
					status = 200
				}
				time.Sleep(ms)
				l.pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: status}, Took: ms})
			})
		}
		l.at(19 * time.Second)
		assert.EqualValues(t, 1, l.limit())
		l.wg.Wait()
	})
}

func TestKeysHaveTheirOwnRatesAndOldOnesAreForgotten(t *testing.T) {
	synctest.Test(t, forgetOldRates)
}

func forgetOldRates(t *testing.T) {
	pacer := &pace.Adaptive{MaxKeys: 2}
	of := func(host string) *http.Request { return request(t.Context(), "http://"+host) }
	for _, host := range []string{"a", "b", "A:80"} {
		req := of(host)
		require.NoError(t, pacer.Wait(req))
		pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 429}})
	}
	assert.EqualValues(t, 2.5, pacer.Limit(of("a")))
	assert.EqualValues(t, 5, pacer.Limit(of("b")))
	pacer.Limit(of("a"))
	require.NoError(t, pacer.Wait(of("c")))
	assert.Zero(t, pacer.Limit(of("b")))
	assert.EqualValues(t, 2.5, pacer.Limit(of("a")))

	pacer = &pace.Adaptive{Key: func(*http.Request) string { return "" }}
	require.NoError(t, pacer.Wait(of("a")))
	assert.EqualValues(t, 10, pacer.Limit(of("b")))
}

func TestAdaptiveNamesInvalidFields(t *testing.T) {
	for want, a := range map[string]*pace.Adaptive{
		"pace: Adaptive.Min is -1: it must not be negative":        {Min: -1},
		"pace: Adaptive.Max is NaN: it must not be negative":       {Max: rate.Limit(math.NaN())},
		"pace: Adaptive.Max is 1: it must not be less than Min, 2": {Min: 2, Max: 1},
		"pace: Adaptive.Step is -1: it must not be negative":       {Step: -1},
		"pace: Adaptive.MaxKeys is -1: it must not be negative":    {MaxKeys: -1},
	} {
		assert.EqualError(t, a.Wait(get()), want)
	}
}

// silent refuses what a bucket does not admit, with nothing but a 429.
func silent(limit rate.Limit, burst int, count func(refused bool)) http.Handler {
	bucket := rate.NewLimiter(limit, burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sleeps(r.Context(), 20*ms)
		ok := bucket.Allow()
		if count(!ok); !ok {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

func TestAdaptiveFindsTheRateOfASilentServer(t *testing.T) {
	for _, limit := range []rate.Limit{5, 50} {
		for _, burst := range []int{1, 20} {
			t.Run(fmt.Sprintf("%v a second, %d at once", limit, burst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { findRate(t, limit, burst) })
			})
		}
	}
}

func findRate(t *testing.T, limit rate.Limit, burst int) {
	const all = 2 * time.Minute
	var (
		mu            sync.Mutex
		start         = time.Now()
		sent, refused float64 // after ten seconds
	)
	srv := inProcess{silent(limit, burst, func(no bool) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(start) < 10*time.Second {
			return
		}
		if sent++; no {
			refused++
		}
	})}
	ctx, cancel := context.WithTimeout(t.Context(), all)
	defer cancel()
	client := &http.Client{Transport: &heed.Transport{
		Base:   srv,
		Pacer:  &pace.Adaptive{},
		Budget: heed.Unlimited,
		Retry:  heed.RetryPolicy{MaxAttempts: 20},
	}}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for ctx.Err() == nil {
				resp, err := client.Do(request(ctx, "http://example.com/"))
				if err != nil {
					assert.WithinDuration(t, start.Add(all), time.Now(), 10*time.Second, "%v", err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != 200 { // there was no time for another attempt
					assert.WithinDuration(t, start.Add(all), time.Now(), 10*time.Second)
				}
			}
		})
	}
	wg.Wait()
	used := (sent - refused) / (float64(limit) * (all - 10*time.Second).Seconds())
	t.Logf("%.1f %% refused, %.0f %% used", 100*refused/sent, 100*used)
	assert.LessOrEqual(t, refused/sent, 0.05)
	assert.GreaterOrEqual(t, used, 0.8)
}

// An outage of ten minutes at 5 requests a second, and the requests after it.
func TestNearlyAllRequestsSucceedAMinuteAfterAnOutage(t *testing.T) {
	for name, test := range map[string]struct {
		status  int
		refused func(heed.Attempt) bool
	}{
		"503":                        {503, nil},
		"503 that counts as refused": {503, pace.Refusals(false, 503)},
		"429":                        {429, nil},
		"a closed connection":        {0, pace.Refusals(true)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				adaptive := &pace.Adaptive{Refused: test.refused}
				start := time.Now()
				base := answers(func(*http.Request) (*http.Response, error) {
					if m := time.Since(start).Minutes(); m < 1 || m >= 11 {
						return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
					}
					if test.status == 0 {
						return nil, io.EOF
					}
					return &http.Response{StatusCode: test.status, Body: http.NoBody}, nil
				})
				client := &heed.Transport{
					Base: base, Pacer: adaptive, Retry: heed.RetryPolicy{MaxAttempts: -1}, Board: heed.NoBoard,
				}
				var (
					mu        sync.Mutex
					good, all [20]int
					wg        sync.WaitGroup
				)
				for time.Since(start) < 15*time.Minute {
					wg.Go(func() {
						minute := int(time.Since(start).Minutes())
						resp, err := client.RoundTrip(get())
						mu.Lock()
						defer mu.Unlock()
						all[minute]++
						if err == nil && resp.StatusCode == 200 {
							good[minute]++
						}
					})
					time.Sleep(200 * ms)
				}
				wg.Wait()
				t.Log(good)
				for minute := 12; minute < 15; minute++ {
					assert.GreaterOrEqual(t, float64(good[minute]), 0.97*float64(all[minute]), minute)
				}
			})
		})
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

func TestRefusalsMatchStatusesAndClosedConnections(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for i, test := range []struct {
		refused func(heed.Attempt) bool
		attempt heed.Attempt
		want    bool
	}{
		{pace.Refusals(false, 503), heed.Attempt{Response: &http.Response{StatusCode: 503}}, true},
		{pace.Refusals(false, 503), heed.Attempt{Response: &http.Response{StatusCode: 429}}, false},
		{pace.Refusals(false, 403, 429), heed.Attempt{Response: &http.Response{StatusCode: 429}}, true},
		{pace.Refusals(true), heed.Attempt{Err: io.EOF}, true},
		{pace.Refusals(true), heed.Attempt{Err: reset}, true},
		{pace.Refusals(true), heed.Attempt{Err: fmt.Errorf("http: %w", io.ErrUnexpectedEOF)}, true},
		{pace.Refusals(true), heed.Attempt{Err: context.DeadlineExceeded}, false},
		{pace.Refusals(false, 429), heed.Attempt{Err: io.EOF}, false},
		{pace.Refusals(true), heed.Attempt{Response: &http.Response{StatusCode: 429}}, false},
	} {
		assert.Equal(t, test.want, test.refused(test.attempt), i)
	}
}

func TestRefusedSeesErrorsButNotUnsentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []error
		l := newAdaptiveTimeline(t, &pace.Adaptive{Refused: func(a heed.Attempt) bool {
			asked = append(asked, a.Err)
			return a.Err != nil
		}})
		for _, err := range []error{io.EOF, heed.ErrNotSent} {
			req := get()
			require.NoError(t, l.pacer.Wait(req))
			time.Sleep(ms)
			l.pacer.Observe(heed.Attempt{Request: req, Err: err, Took: ms})
		}
		assert.Equal(t, []error{io.EOF}, asked)
		assert.EqualValues(t, 5, l.limit())
	})
}
