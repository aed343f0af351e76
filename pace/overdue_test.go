package pace_test

import (
	"context"
	"errors"
	"fmt"
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

// A justOver is a context whose deadline has come and that has not ended yet.
type justOver struct {
	context.Context
	at time.Time
}

func (c justOver) Deadline() (time.Time, bool) { return c.at, true }

// A caller turns the Wait of an OverdueError into a Retry-After, so it is never 0.
func TestEveryOverdueErrorSaysWhenToComeBack(t *testing.T) {
	minutely := []quota.Policy{{Quota: 1, Window: time.Minute, Burst: 1}}
	failing := new(store)
	failing.fails.Store(true)
	usedUp := func() heed.Pacer {
		a := &pace.Advertised{}
		req := get()
		require.NoError(t, a.Wait(req))
		a.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200, Header: http.Header{
			"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Reset": {"3600"},
		}}})
		return a
	}
	pacers := map[string]func() heed.Pacer{
		"PerHost":                 func() heed.Pacer { return pace.PerHost(0.1, 1) },
		"PerHost, almost open":    func() heed.Pacer { return pace.PerHost(1e8, 1) },
		"With":                    func() heed.Pacer { return pace.With(rate.NewLimiter(0.1, 1)) },
		"With, closed for ever":   func() heed.Pacer { return pace.With(rate.NewLimiter(0, 1)) },
		"Adaptive":                func() heed.Pacer { return &pace.Adaptive{Min: 0.1, Max: 0.1} },
		"Shared":                  func() heed.Pacer { return &pace.Shared{Store: new(quota.Memory), Policies: minutely} },
		"Shared with its share":   func() heed.Pacer { return &pace.Shared{Store: failing, Policies: minutely} },
		"Shared of a terse Store": func() heed.Pacer { return &pace.Shared{Store: new(terse), Policies: minutely} },
		"Advertised":              usedUp,
		"InFlight":                func() heed.Pacer { return &pace.InFlight{Limit: 1} },
		"InFlight with a Gate":    func() heed.Pacer { return &pace.InFlight{Limit: 1, Gate: new(quota.Memory)} },
		"of another package":      func() heed.Pacer { return pace.Each(slow(time.Minute)) },
		"a slow one and another":  func() heed.Pacer { return pace.Each(slow(ms), pace.PerHost(0.1, 1)) },
	}
	for name, newPacer := range pacers {
		for prefix, around := range map[string]func(heed.Pacer) heed.Pacer{
			"":          func(p heed.Pacer) heed.Pacer { return p },
			"Each of ":  func(p heed.Pacer) heed.Pacer { return pace.Each(p) },
			"Queue of ": func(p heed.Pacer) heed.Pacer { return &pace.Queue{Pacer: p} },
			"Queue of unknown ": func(p heed.Pacer) heed.Pacer {
				return &pace.Queue{Pacer: struct{ heed.Pacer }{p}}
			},
		} {
			t.Run(prefix+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testOverdueErrors(t, around(newPacer())) })
			})
		}
	}
}

// A terse Store refuses without saying for how long.
type terse struct{ quota.Memory }

func (*terse) Reserve(context.Context, time.Duration, ...quota.Charge) (time.Duration, time.Time, bool, error) {
	return 0, time.Time{}, false, nil
}

// A slow Pacer admits each request after its time.
type slow time.Duration

func (s slow) Wait(req *http.Request) error { return sleeper(time.Duration(s)).Wait(req) }
func (slow) Observe(heed.Attempt)           {}

// testOverdueErrors asks p in every way in which a wait can be too long, alone, and behind
// a request that waits.
func testOverdueErrors(t *testing.T, p heed.Pacer) {
	pacer := p.(heed.BoundedPacer)
	_ = pacer.WaitAtMost(get(), time.Second)
	overdue := 0
	all := func() {
		for _, most := range []time.Duration{-time.Hour, -1, 0, 1, ms, 500 * ms, 2 * time.Second} {
			for name, ctx := range map[string]context.Context{
				"no deadline":   t.Context(),
				"over":          justOver{t.Context(), time.Now()},
				"over for long": justOver{t.Context(), time.Now().Add(-time.Hour)},
				"soon":          justOver{t.Context(), time.Now().Add(2)},
				"later":         justOver{t.Context(), time.Now().Add(100 * ms)},
			} {
				err := (*heed.OverdueError)(nil)
				if errors.As(pacer.WaitAtMost(request(ctx, "http://example.com/"), most), &err) {
					overdue++
					assert.Positive(t, err.Wait, fmt.Sprint(most, " ", name))
					assert.GreaterOrEqual(t, err.Left, time.Duration(0), fmt.Sprint(most, " ", name))
				}
			}
		}
	}
	all()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go func() { _ = pacer.Wait(request(ctx, "http://example.com/")) }()
		synctest.Wait()
	}
	all()
	assert.Positive(t, overdue)
}

func TestAnotherPackagesErrorWithoutAWaitGetsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := &heed.OverdueError{Key: "theirs", Deadline: true}
		pacer := pace.Each(&plainPacer{wait: func(*http.Request) error { return says }}).(heed.BoundedPacer)
		err := overdueError(t, pacer.WaitAtMost(get(), 500*ms))
		assert.Equal(t, &heed.OverdueError{Key: "theirs", Wait: time.Second, Left: 500 * ms}, err)
	})
}
