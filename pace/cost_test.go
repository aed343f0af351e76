package pace_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

func TestCostComesFromTheContext(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		ctx              context.Context
		requests, tokens int64
	}{
		{ctx, 1, 0},
		{pace.WithCost(ctx, "tokens", 250), 1, 250},
		{pace.WithCost(ctx, "", 3), 3, 0},
		{pace.WithCost(pace.WithCost(ctx, "tokens", 250), "", 0), 0, 250},
		{pace.WithCost(pace.WithCost(ctx, "tokens", 250), "tokens", 7), 1, 7},
		{pace.WithCost(ctx, "tokens", -5), 1, 0},
		{pace.WithCost(ctx, "", -5), 0, 0},
		{pace.WithCost(ctx, "tokens", math.MaxInt64), 1, math.MaxInt64},
	} {
		req := request(c.ctx, "http://example.com/")
		assert.Equal(t, c.requests, pace.Cost(req, ""))
		assert.Equal(t, c.tokens, pace.Cost(req, "tokens"))
		assert.Empty(t, req.Header)
	}
}

func TestSettleHeaderWithoutAFieldIsUnknown(t *testing.T) {
	for value, want := range map[string]int64{
		"": -1, "0": 0, "-5": -1, "x": -1, "1.5": -1, "250": 250, "9223372036854775808": -1,
	} {
		a := heed.Attempt{Request: get(), Response: &http.Response{Header: http.Header{"Units": {value}}}}
		assert.Equal(t, want, pace.SettleHeader("units")(a, "tokens"), value)
	}
	assert.EqualValues(t, -1, pace.SettleHeader("units")(heed.Attempt{Request: get()}, ""))
}

// Requests and tokens are limited by the minute. Both limits hold, and the response
// settles the tokens.
func TestRequestsAndTokensArePacedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := pace.Each(
			&pace.Shared{Store: new(quota.Memory), Policies: []quota.Policy{quota.PerMinute(6)}},
			&pace.Shared{
				Store:    new(quota.Memory),
				Policies: []quota.Policy{quota.PerMinute(1000)},
				Unit:     "tokens",
				Settle:   pace.SettleHeader("Tokens-Used"),
			},
		).(heed.BoundedPacer)
		asks := func(tokens int64) *http.Request {
			return request(pace.WithCost(t.Context(), "tokens", tokens), "http://example.com/")
		}
		req := asks(1000)
		require.NoError(t, pacer.WaitAtMost(req, 0))
		assert.Equal(t, 300*ms, overdueError(t, pacer.WaitAtMost(asks(5), 0)).Wait,
			"tokens are short, and the request goes back")
		used := http.Header{"Tokens-Used": {"900"}}
		pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{Header: used}})
		for range 5 {
			require.NoError(t, pacer.WaitAtMost(asks(20), 0))
		}
		assert.Equal(t, 10*time.Second, overdueError(t, pacer.WaitAtMost(asks(0), 0)).Wait, "the requests are short")
	})
}

func TestACostAboveTheBurstIsNeverAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range everyAlgorithm(100, time.Minute) {
			pacer := &pace.Shared{Store: new(quota.Memory), Policies: []quota.Policy{p}}
			ctx := pace.WithCost(t.Context(), "", math.MaxInt64)
			assert.Equal(t, rate.InfDuration, overdueError(t, pacer.Wait(request(ctx, "http://example.com/"))).Wait)
			pacer.Correct(get(), math.MaxInt64)
			pacer.Correct(get(), math.MinInt64)
			require.NoError(t, pacer.WaitAtMost(get(), 0), p.Algorithm)
		}
	})
}

// A cost that only the body contains is known after Observe.
func TestCorrectChargesACostFromTheBody(t *testing.T) {
	for name, store := range map[string]quota.Reserver{"in memory": new(quota.Memory), "elsewhere": new(store)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pacer := &pace.Shared{Store: store, Policies: tenPerSecond(5)}
				tl := newTimeline(t, pacer)
				tl.goes()
				pacer.Correct(get(), 6)
				tl.waits(300 * ms)
				pacer.Correct(get(), -3)
				tl.goes()
				tl.waits(100 * ms)
			})
		})
	}
	(&pace.Shared{}).Correct(get(), 1) // its Wait returns the error
}

func TestACorrectionDuringAnOutageIsChargedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		pacer := &pace.Shared{Store: store, Policies: []quota.Policy{quota.PerHour(6)}}
		tl := newTimeline(t, pacer)
		tl.goes()
		store.fails.Store(true)
		pacer.Correct(get(), 4)
		store.fails.Store(false)
		tl.at(1 * time.Second)
		tl.goes()
		tl.waits(10*time.Minute - time.Second)
	})
}
