package serverside_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// held is a handler that blocks until it is released.
type held struct {
	inside chan struct{} // receives one for each request being served
	leave  chan struct{} // sending to it ends one request
	panics bool
}

func newHeld() *held { return &held{inside: make(chan struct{}, 100), leave: make(chan struct{})} }

func (h *held) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.inside <- struct{}{}
	<-h.leave
	if h.panics {
		panic(http.ErrAbortHandler)
	}
}

func slots(n int64) serverside.Rule { return serverside.Rule{Name: "api", MaxInFlight: n} }

func TestMaxInFlight(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			busy, memory := newHeld(), new(quota.Memory)
			busy.panics = panics
			var events eventLog
			h := recovering(must(t, serverside.Config{
				Rules: []serverside.Rule{slots(20)}, Store: memory, Audit: events.add,
			}).Wrap(busy))
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() { ask(h, "GET", "/") })
			}
			synctest.Wait()
			require.Len(t, busy.inside, 20)

			w := ask(h, "GET", "/")
			assert.Equal(t, 429, w.Code)
			assert.Equal(t,
				http.Header{
					"Retry-After": {"1"}, "Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"},
				}, w.Header())
			p := problemOf(t, w)
			assert.Equal(t, serverside.ProblemInFlight, p.Type)
			assert.Equal(t, "The client has too many requests in flight. The limit is 20. Retry in 1 s.", p.Detail)
			require.Len(t, events.events, 1)
			assert.Equal(t, "api", events.events[0].Rule)
			assert.Equal(t, int64(20), events.events[0].Limit)
			assert.Equal(t, 429, events.events[0].Status)

			group.Go(func() { askFrom("192.0.2.2:1", h, "GET", "/") })
			synctest.Wait()
			assert.Len(t, busy.inside, 21, "others have places of their own")
			busy.leave <- struct{}{}
			synctest.Wait()
			group.Go(func() { ask(h, "GET", "/") })
			group.Go(func() { askFrom("192.0.2.2:1", h, "GET", "/") })
			close(busy.leave)
			group.Wait()
			assert.Len(t, busy.inside, 23, "a place that was given back is free")
			assert.Zero(t, memory.Dropped())
		})
	}
}

func TestDisconnectedRequestCountsUntilItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := newHeld()
		h := must(t, serverside.Config{Rules: []serverside.Rule{slots(1)}, Audit: silent}).Wrap(busy)
		ctx, gone := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			serve(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		}()
		synctest.Wait()
		gone()
		synctest.Wait()
		assert.Equal(t, 429, serve(h, httptest.NewRequest("GET", "/", nil)).Code)
		close(busy.leave)
		<-done
		assert.Equal(t, 200, serve(h, httptest.NewRequest("GET", "/", nil)).Code)
	})
}

func TestDeniedRequestIsNotInFlight(t *testing.T) {
	rule := slots(1)
	rule.Policies = []quota.Policy{quota.PerHour(3)}
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule}}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 3, 429: 5}, codes(8, h, "GET", "/"))
	assert.Contains(t, ask(h, "GET", "/").Body.String(), serverside.ProblemQuota)
}

func TestDryRunOfMaxInFlightAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, rule := newHeld(), slots(1)
		rule.DryRun = true
		var events eventLog
		h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: events.add}).Wrap(busy)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { ask(h, "GET", "/") })
		}
		synctest.Wait()
		assert.Len(t, busy.inside, 3)
		assert.Len(t, events.of(serverside.WouldDeny), 2)
		close(busy.leave)
		group.Wait()
	})
}

// gate is a function as quota.Gate.
type gate func(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error)

func (g gate) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	return g(ctx, key, limit, n)
}

func TestFailingGateFollowsTheFailureMode(t *testing.T) {
	for name, g := range map[string]gate{
		"error": func(context.Context, string, int64, int64) (*quota.Hold, quota.Decision, error) {
			return nil, quota.Decision{}, errors.New("down")
		},
		"panic": func(context.Context, string, int64, int64) (*quota.Hold, quota.Decision, error) { panic("a fault") },
		"hangs": func(context.Context, string, int64, int64) (*quota.Hold, quota.Decision, error) {
			time.Sleep(time.Hour)
			return nil, quota.Decision{}, nil
		},
	} {
		for mode, want := range map[serverside.FailureMode][]int{
			serverside.FailOpen: {200, 200}, serverside.FailClosed: {503, 503}, serverside.FailLocal: {200, 429},
		} {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rule := slots(1)
					rule.OnStoreError = mode
					var events eventLog
					l := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Gate: g, Audit: events.add})
					var inner int
					h := l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						inner = ask(promptly(t, l.Wrap(new(ok))), "GET", "/").Code // another request at the same time
					}))
					outer := ask(h, "GET", "/").Code
					if outer == 503 {
						inner = 503
					}
					assert.Equal(t, want, []int{outer, inner})
					assert.NotEmpty(t, events.of(serverside.StoreFailed))
					time.Sleep(2 * time.Hour)
				})
			})
		}
	}
}

func TestGateRecoveryIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := false
		memory := new(quota.Memory)
		var events eventLog
		var verdicts []serverside.Verdict
		h := must(t, serverside.Config{
			Rules: []serverside.Rule{slots(1)}, Audit: events.add, OnStoreError: serverside.FailOpen,
			Observe: func(o serverside.Observation) { verdicts = append(verdicts, o.Verdict) },
			Gate: gate(func(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
				if !up {
					return nil, quota.Decision{}, errDown
				}
				return memory.Acquire(ctx, key, limit, n)
			}),
		}).Wrap(new(ok))
		codes(2, h, "GET", "/")
		up = true
		codes(2, h, "GET", "/")
		assert.Equal(t, []serverside.EventKind{serverside.StoreFailed, serverside.StoreFailed, serverside.StoreRecovered},
			events.kinds())
		assert.Equal(t,
			[]serverside.Verdict{
				serverside.Uncounted, serverside.Uncounted, serverside.Admitted, serverside.Admitted,
			}, verdicts)
	})
}

func TestHoldThatComesTooLateIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(quota.Memory)
		slow := gate(func(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			time.Sleep(time.Second)
			return memory.Acquire(ctx, key, limit, n)
		})
		h := must(t, serverside.Config{Rules: []serverside.Rule{slots(1)}, Gate: slow, Audit: silent}).Wrap(new(ok))
		for range 3 {
			assert.Equal(t, 200, ask(h, "GET", "/").Code, "it fails open")
			time.Sleep(2 * time.Second)
		}
		hold, d, err := memory.Acquire(t.Context(), "3:api192.0.2.1", 1, 1)
		require.NoError(t, err)
		assert.Equal(t, int64(0), d.Remaining)
		assert.NotNil(t, hold, "nothing is held")
		hold.Release()
	})
}
