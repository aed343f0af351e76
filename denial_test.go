package heed_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// denied is a 429 that asks for a wait and tells policies and their state.
func denied(took time.Duration, seconds, policies, states string) reply {
	return reply{status: 429, took: took, header: []string{"Retry-After", seconds, "RateLimit-Policy", policies, "RateLimit", states}}
}

// Of a key, what each policy denies is kept apart: all wait for the last of them, and
// go at the interval of the slowest that is exhausted still.
func TestEachPolicyThatDeniesHasAnEndAndAnIntervalOfItsOwn(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	slow := denied(100*ms, "2", `"slow";q=30;w=60`, `"slow";r=0;t=2`)
	fast := denied(100*ms, "10", `"fast";q=600;w=60`, `"fast";r=0;t=1`)
	window := denied(100*ms, "20", `"window";q=60;w=60`, `"window";r=0;t=20`)
	later := func(r reply) reply { r.took += 400 * ms; return r }
	for name, test := range map[string]struct {
		replies    []reply
		end, every time.Duration
	}{
		"one":                              {[]reply{slow}, 2100 * ms, 2 * s},
		"a longer wait and a shorter one":  {[]reply{fast, later(slow)}, 10100 * ms, 2 * s},
		"a shorter wait and a longer one":  {[]reply{slow, later(fast)}, 10500 * ms, 2 * s},
		"a window, which has no interval":  {[]reply{window, later(fast)}, 20100 * ms, 100 * ms},
		"a window that is told afterwards": {[]reply{fast, later(window)}, 20500 * ms, 100 * ms},
		"one that is whole by the end": {
			[]reply{denied(100*ms, "1", `"small";q=10;w=5`, `"small";r=0;t=1`), later(window)}, 20500 * ms, 0},
		"one that denies, and one that does not": {
			[]reply{denied(100*ms, "2", `"fast";q=600;w=60, "slow";q=30;w=60`, `"fast";r=0;t=1, "slow";r=1;t=2`)}, 2100 * ms, 100 * ms},
		"two at once": {
			[]reply{denied(100*ms, "2", `"fast";q=600;w=60, "slow";q=30;w=60`, `"fast";r=0;t=1, "slow";r=0;t=2`)}, 2100 * ms, 2 * s},
		"one with a new limit": {
			[]reply{slow, later(denied(100*ms, "2", `"slow";q=60;w=60`, `"slow";r=0;t=1`))}, 2500 * ms, s},
		"one name in two partitions": {
			[]reply{denied(100*ms, "2", `"a";q=30;w=60`, `"a";r=0;t=2;pk=:YQ==:`), later(denied(100*ms, "2", `"a";q=60;w=60`, `"a";r=0;t=1;pk=:Yg==:`))}, 2500 * ms, 2 * s},
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

func TestADripIsAsSlowAsTheSlowestPolicyThatDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(
			denied(50*time.Millisecond, "3", `"slow";q=30;w=60`, `"slow";r=0;t=2`),
			denied(100*time.Millisecond, "10", `"fast";q=600;w=60`, `"fast";r=0;t=1`), ok)
		tr := &heed.Transport{Base: s}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
			synctest.Wait()
		}
		time.Sleep(200 * time.Millisecond)
		for range 3 {
			all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
		}
		all.Wait()
		times := s.times()[2:]
		slices.Sort(times)
		for i, at := range times {
			assert.Equal(t, 10100*time.Millisecond+time.Duration(i)*2*time.Second, at)
		}
	})
}

// What denied before the lane was last open has nothing to do with the next cool-down.
func TestAPolicyThatDeniedOnceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		s := newScript(denied(0, "2", `"day";q=100;w=86400`, `"day";r=0;t=864`), denied(0, "1", `"fast";q=600;w=60`, `"fast";r=0;t=1`))
		tr := &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		_, every, _ := board.Read(t.Context(), key)
		assert.Equal(t, 864*time.Second, every)
		time.Sleep(time.Minute)
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		_, every, _ = board.Read(t.Context(), key)
		assert.Equal(t, 100*time.Millisecond, every)
	})
}
