package pace_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

func TestCostHeaderIsOneWhereNothingElseIsSaid(t *testing.T) {
	for value, want := range map[string]int64{"": 1, "0": 1, "-5": 1, "x": 1, "1.5": 1, "250": 250} {
		req := get()
		req.Header.Set("Tokens", value)
		assert.Equal(t, want, pace.CostHeader("tokens")(req), value)
	}
}

func TestSettleHeaderIsWhatWasExpectedWhereNothingElseIsSaid(t *testing.T) {
	ten := func(*http.Request) int64 { return 10 }
	for value, want := range map[string]int64{"": 10, "0": 0, "-5": 10, "x": 10, "250": 250} {
		a := heed.Attempt{Request: get(), Response: &http.Response{Header: http.Header{"Units": {value}}}}
		assert.Equal(t, want, pace.SettleHeader("units", ten)(a), value)
	}
	assert.EqualValues(t, 10, pace.SettleHeader("units", ten)(heed.Attempt{Request: get()}))
	assert.EqualValues(t, 1, pace.SettleHeader("units", nil)(heed.Attempt{Request: get()}))
}

func TestACostThatStandsInAFieldIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := pace.CostHeader("Tokens")
		tl := newTimeline(t, &pace.Shared{
			Store:    new(quota.Memory),
			Policies: tenPerSecond(20),
			Cost:     cost,
			Settle:   pace.SettleHeader("Tokens-Used", cost),
		})
		req := get()
		req.Header.Set("Tokens", "20")
		require.NoError(t, tl.pacer.WaitAtMost(req, 0))
		tl.waits(100 * ms)
		tl.pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{Header: http.Header{"Tokens-Used": {"18"}}}})
		tl.goes()
		tl.goes()
		tl.waits(100 * ms)
	})
}

// A cost of which only the body tells is known after Observe.
func TestACostThatStandsInTheBodyIsCorrected(t *testing.T) {
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
	(&pace.Shared{}).Correct(get(), 1) // whose Wait says what is wrong
}

func TestACorrectionTheStoreCouldNotBeToldIsOwed(t *testing.T) {
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
