package heed_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/testserver"
)

// Each wait is reported when it is over, once for each cause, with the time it took.
func TestWaitsAreReportedWithTheTimeTheyTook(t *testing.T) {
	second := func(heed.Attempt) time.Duration { return time.Second }
	refused := testserver.Step{Status: 429, RetryAfter: 10 * time.Second}
	for name, c := range map[string]struct {
		pacer  heed.Pacer
		board  heed.Board
		steps  []testserver.Step
		giveUp time.Duration
		want   string
	}{
		"nothing":  {want: "[]"},
		"backoff":  {steps: []testserver.Step{{Status: 503}}, want: "[backoff 1s]"},
		"given up": {steps: []testserver.Step{{Status: 503}}, giveUp: 300 * time.Millisecond, want: "[backoff 300ms]"},
		"hint given up": {
			board: heed.NoBoard, steps: []testserver.Step{refused}, giveUp: 4 * time.Second,
			want: "[hint 4s]",
		},
		"hint in line given up": {steps: []testserver.Step{refused}, giveUp: 4 * time.Second, want: "[hint 4s]"},
		"backoff, then pace": {
			pacer: pace.PerHost(.25, 1), steps: []testserver.Step{{Status: 503}},
			want: "[backoff 1s pace 3s]",
		},
		"pace given up": {
			pacer: pace.PerHost(.25, 1), steps: []testserver.Step{{Status: 503}},
			giveUp: 2 * time.Second, want: "[backoff 1s pace 1s]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := []string{}
				tr := &heed.Transport{
					Base: testserver.New(t, c.steps...).Transport(), Pacer: c.pacer, Board: c.board,
					Retry: heed.RetryPolicy{Backoff: second},
					Trace: &heed.Trace{Waited: func(_ *http.Request, cause heed.Cause, took time.Duration) {
						waits = append(waits, fmt.Sprint(cause, " ", took))
					}},
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.giveUp > 0 {
					time.AfterFunc(c.giveUp, cancel)
				}
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test/", nil)
				if resp, err := tr.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
				assert.Equal(t, c.want, fmt.Sprint(waits))
			})
		})
	}
}

// A retry that the verdict sends at once may still wait in the cool-down's line.
func TestTheReportedWaitsAddUpToTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := []reply{throttle("10")}
		for range 20 {
			replies = append(replies, reply{status: 503, took: 100 * time.Millisecond}, ok)
		}
		tr := &heed.Transport{Base: newScript(replies...), Budget: heed.Unlimited, Retry: heed.RetryPolicy{
			Backoff: func(heed.Attempt) time.Duration { return 0 },
		}}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				var reported, waited time.Duration
				first := time.Now()
				ctx := heed.WithTrace(t.Context(), &heed.Trace{
					Waited: func(_ *http.Request, _ heed.Cause, took time.Duration) { reported += took },
					Decided: func(a heed.Attempt, _ heed.Verdict, _ time.Duration) {
						if waited += a.Waited; a.Number == 1 {
							waited += time.Since(first) - a.Took
						}
					},
				})
				status(t, tr, get(ctx))
				assert.Equal(t, waited, reported)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
	})
}

// A request that finds the cool-down over still waits in its line.
func TestTheFirstWaitInLineIsACoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		var cause heed.Cause
		var waited time.Duration
		tr := &heed.Transport{Base: srv.Transport(), Trace: &heed.Trace{
			Waited: func(_ *http.Request, c heed.Cause, took time.Duration) { cause, waited = c, took },
		}}
		req, _ := http.NewRequest("GET", "http://server.test/", nil)
		first := req.WithContext(heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 1}))
		if resp, err := tr.RoundTrip(first); assert.NoError(t, err) {
			resp.Body.Close()
		}
		start := time.Now()
		if resp, err := tr.RoundTrip(req); assert.NoError(t, err) {
			resp.Body.Close()
		}
		assert.Equal(t, heed.CauseCoolDown, cause)
		assert.Equal(t, time.Since(start), waited)
	})
}
