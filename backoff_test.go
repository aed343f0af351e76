package heed_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

func TestExponentialDoublesUpToItsMaximum(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		base, max time.Duration
		number    int
		want      time.Duration
	}{
		{time.Second, 30 * time.Second, 1, time.Second},
		{time.Second, 30 * time.Second, 2, 2 * time.Second},
		{time.Second, 30 * time.Second, 5, 16 * time.Second},
		{time.Second, 30 * time.Second, 6, 30 * time.Second},
		{time.Second, 30 * time.Second, math.MaxInt, 30 * time.Second},
		{time.Second, most, 34, 1 << 33 * time.Second},
		{time.Second, most, 35, most},
		{time.Second, most, 1000, most},
		{most, most, 3, most},
		{time.Minute, time.Second, 1, time.Second},
		{0, time.Second, math.MaxInt, 0},
		{-time.Second, time.Second, math.MaxInt, -time.Second},
		{time.Second, time.Minute, 0, time.Second},
	} {
		assert.Equal(t, c.want, heed.Exponential(c.base, c.max)(heed.Attempt{Number: c.number}), "%+v", c)
	}
}

// extremes draws many waits and returns the shortest and the longest.
func extremes(b heed.Backoff, a heed.Attempt) (least, most time.Duration) {
	least = math.MaxInt64
	for range 10_000 {
		wait := b(a)
		least, most = min(least, wait), max(most, wait)
	}
	return least, most
}

func TestEachJitterStaysWithinItsRange(t *testing.T) {
	s := time.Second
	exp := heed.Exponential(s, 30*s)
	for name, c := range map[string]struct {
		backoff   heed.Backoff
		attempt   heed.Attempt
		low, high time.Duration
	}{
		"full":                      {heed.FullJitter(exp), heed.Attempt{Number: 4}, 0, 8 * s},
		"full, at the maximum":      {heed.FullJitter(exp), heed.Attempt{Number: 10}, 0, 30 * s},
		"equal":                     {heed.EqualJitter(exp), heed.Attempt{Number: 4}, 4 * s, 8 * s},
		"decorrelated, first":       {heed.Decorrelated(s, 30*s), heed.Attempt{Number: 1}, s, 3 * s},
		"decorrelated, later":       {heed.Decorrelated(s, 30*s), heed.Attempt{Number: 2, Waited: 5 * s}, s, 15 * s},
		"decorrelated, at the most": {heed.Decorrelated(s, 30*s), heed.Attempt{Number: 2, Waited: math.MaxInt64}, s, 30 * s},
		"of the longest": {heed.FullJitter(heed.Exponential(math.MaxInt64, math.MaxInt64)),
			heed.Attempt{Number: 1}, 0, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			least, most := extremes(c.backoff, c.attempt)
			part := (c.high - c.low) / 100
			between(t, c.low, least, c.low+part)
			between(t, c.high-part, most, c.high)
		})
	}
	least, most := extremes(heed.FullJitter(heed.Exponential(-s, s)), heed.Attempt{Number: 1})
	assert.Zero(t, least+most)
	least, most = extremes(heed.EqualJitter(heed.Exponential(-s, s)), heed.Attempt{Number: 1})
	assert.Zero(t, least+most)
}

// The table has the upper ends for the second attempt; for the third they double.
func TestTheDefaultBackoffGrowsFromWhatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		reply reply
		tr    heed.RetryPolicy
		left  time.Duration // until the deadline, if not 0
		most  time.Duration
	}{
		"a broken connection":       {reply: reply{err: errBroken}, most: 50 * time.Millisecond},
		"a quick 503":               {reply: unavailable, most: 50 * time.Millisecond},
		"a 504 that took long":      {reply: reply{status: 504, took: 2 * time.Second}, most: 4 * time.Second},
		"a throttle without a hint": {reply: reply{status: 429}, most: time.Second},
		"no answer in time": {reply: reply{took: time.Hour}, tr: heed.RetryPolicy{AttemptTimeout: 3 * time.Second},
			most: 6 * time.Second},
		"longer than half a minute": {reply: reply{status: 502, took: time.Minute}, most: 30 * time.Second},
		"no longer than MaxWait": {reply: reply{status: 502, took: 10 * time.Second},
			tr: heed.RetryPolicy{MaxWait: 3 * time.Second}, most: 3 * time.Second},
		"half of what is left": {reply: reply{status: 503, took: 2 * time.Second}, left: 5 * time.Second,
			most: 1500 * time.Millisecond},
		"half of what MaxElapsed has": {reply: reply{status: 503, took: 2 * time.Second},
			tr: heed.RetryPolicy{MaxElapsed: 4 * time.Second}, most: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				least, most := time.Hour, time.Duration(0)
				for range 300 {
					ctx := t.Context()
					if c.left > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, c.left)
						defer cancel()
					}
					ctx = heed.WithTrace(ctx, &heed.Trace{Decided: func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
						if v == heed.Again && a.Number == 1 {
							least, most = min(least, wait), max(most, wait)
						}
					}})
					tr := &heed.Transport{Base: newScript(c.reply, ok), Retry: c.tr, Budget: heed.Unlimited}
					assert.Equal(t, 200, status(t, tr, get(ctx)))
				}
				between(t, 0, least, c.most/10)
				between(t, c.most-c.most/10, most, c.most)
			})
		})
	}
}

// What is left of a call must last for a restart, unless somebody reaches the host meanwhile.
func TestTheDefaultBackoffGrowsFasterWhileNobodyReachesTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		board       heed.Board
		others      bool // they are answered well
		least, most [3]time.Duration
	}{
		"nobody":         {nil, false, [3]time.Duration{0, 125 * ms, 1000 * ms}, [3]time.Duration{50 * ms, 250 * ms, 2000 * ms}},
		"others do":      {nil, true, [3]time.Duration{}, [3]time.Duration{50 * ms, 100 * ms, 200 * ms}},
		"nobody is seen": {heed.NoBoard, false, [3]time.Duration{}, [3]time.Duration{50 * ms, 100 * ms, 200 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				least, most := [3]time.Duration{time.Hour, time.Hour, time.Hour}, [3]time.Duration{}
				for range 300 {
					var tr *heed.Transport
					tr = &heed.Transport{Budget: heed.Unlimited, Board: c.board, Base: roundTripFunc(
						func(req *http.Request) (*http.Response, error) {
							if req.Method == http.MethodHead {
								return response(req, ok), nil
							}
							time.Sleep(time.Microsecond)
							if c.others {
								status(t, tr, head(t.Context()))
							}
							return response(req, reply{status: 500}), nil
						})}
					ctx := heed.WithTrace(t.Context(), &heed.Trace{Decided: func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
						if v == heed.Again {
							least[a.Number-1] = min(least[a.Number-1], wait)
							most[a.Number-1] = max(most[a.Number-1], wait)
						}
					}})
					status(t, tr, get(ctx))
				}
				for i := range most {
					between(t, c.most[i]*9/10, most[i], c.most[i])
					between(t, c.least[i], least[i], c.least[i]+c.most[i]/10)
				}
			})
		})
	}
}

func head(ctx context.Context) *http.Request {
	req := get(ctx)
	req.Method = http.MethodHead
	return req
}
