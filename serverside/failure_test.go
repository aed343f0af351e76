package serverside_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// failures are Stores that fail in different ways.
var failures = map[string]quota.Store{
	"error": store(down),
	"too few": store(func(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
		return nil, nil
	}),
	"too many": store(tooMany),
	"nonsense": answering(quota.Decision{Allowed: true, Remaining: -5}),
	"leaves": store(func(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
		runtime.Goexit()
		return nil, nil
	}),
	"panic": store(func(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
		panic("a fault")
	}),
	"slow": store(func(ctx context.Context, _ []quota.Decision, _ ...quota.Charge) ([]quota.Decision, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}),
	"hangs": store(func(_ context.Context, _ []quota.Decision, _ ...quota.Charge) ([]quota.Decision, error) {
		time.Sleep(time.Hour)
		return nil, nil
	}),
}

func tooMany(_ context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return append(dst, make([]quota.Decision, len(charges)+1)...), nil
}

// inOutages runs test in a bubble for each of failures.
func inOutages(t *testing.T, test func(t *testing.T, outage quota.Store)) {
	for name, outage := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, outage)
				time.Sleep(2 * time.Hour) // hanging calls end
			})
		})
	}
}

// promptly checks that h serves requests within StoreTimeout, 75 ms.
func promptly(t *testing.T, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		h.ServeHTTP(w, r)
		assert.LessOrEqual(t, time.Since(start), 75*time.Millisecond)
	})
}

func TestFailOpenAdmitsWithoutFields(t *testing.T) {
	inOutages(t, func(t *testing.T, outage quota.Store) {
		var events eventLog
		handler := new(ok)
		h := promptly(t, must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1)), Store: outage, Audit: events.add, OnStoreError: serverside.FailOpen,
		}).Wrap(handler))
		for range 100 {
			w := ask(h, "GET", "/")
			require.Equal(t, 200, w.Code)
			require.Empty(t, limitFields(w.Header()))
		}
		assert.Equal(t, 100, handler.served)
		require.Len(t, events.events, 100)
		e := events.events[99]
		assert.Equal(t, "store failed", e.Kind.String())
		assert.Equal(t, "api", e.Rule)
		assert.Equal(t, "open", e.Mode.String())
		assert.Error(t, e.Err)
	})
}

func TestFailClosedAnswers503WithRetryAfter(t *testing.T) {
	inOutages(t, func(t *testing.T, outage quota.Store) {
		var events eventLog
		handler := new(ok)
		h := promptly(t, must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Store: outage,
			OnStoreError: serverside.FailClosed, Audit: events.add}).Wrap(handler))
		w := ask(h, "GET", "/")
		require.Equal(t, 503, w.Code)
		assert.Equal(t, http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"},
			"Content-Type": {"application/problem+json"}}, w.Header())
		p := problemOf(t, w)
		assert.Equal(t, serverside.ProblemOutage, p.Type)
		assert.Equal(t, 503, p.Status)
		assert.Equal(t, int64(1000), *p.RetryAfterMS)
		assert.Empty(t, p.Violated)
		assert.Zero(t, handler.served)
		require.Len(t, events.events, 1)
		assert.Equal(t, serverside.FailClosed, events.events[0].Mode)
	})
}

func TestFailClosedMayAnswer429(t *testing.T) {
	inOutages(t, func(t *testing.T, outage quota.Store) {
		h := promptly(t, must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Store: outage, Audit: silent,
			OnStoreError: serverside.FailClosed, ClosedStatus: 429}).Wrap(new(ok)))
		w := ask(h, "GET", "/")
		require.Equal(t, 429, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		p := problemOf(t, w)
		assert.Equal(t, serverside.ProblemOutage, p.Type, "it is an outage, whatever its status")
		assert.Equal(t, 429, p.Status)
	})
	cfg := serverside.Config{Rules: oneRule(quota.PerHour(1)), OnStoreError: serverside.FailClosed, ClosedStatus: 429,
		Store: failures["error"], Deny: serverside.EnvelopeBody, Audit: silent}
	synctest.Test(t, func(t *testing.T) {
		assert.Contains(t, ask(must(t, cfg).Wrap(new(ok)), "GET", "/").Body.String(), `"service_unavailable"`)
	})
	plain := cfg
	plain.ClosedStatus = 0
	assert.NotEqual(t, must(t, plain).Hash(), must(t, cfg).Hash())
	cfg.ClosedStatus = 500
	_, err := serverside.New(cfg)
	assert.EqualError(t, err, "serverside: ClosedStatus: is 500: must be 503 or 429")
}

func TestFailLocalCountsInThisProcess(t *testing.T) {
	inOutages(t, func(t *testing.T, outage quota.Store) {
		h := promptly(t, must(t, serverside.Config{Rules: oneRule(quota.PerDay(2)), Store: outage,
			OnStoreError: serverside.FailLocal}).Wrap(new(ok)))
		assert.Equal(t, "1", ask(h, "GET", "/").Header().Get("X-RateLimit-Remaining"))
		assert.Equal(t, "0", ask(h, "GET", "/").Header().Get("X-RateLimit-Remaining"))
		w := ask(h, "GET", "/")
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, []string{"api"}, problemOf(t, w).Violated)
		assert.Equal(t, 200, askFrom("192.0.2.2:1", h, "GET", "/").Code)
	})
}

func TestStoresSliceIsNotWrittenTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := []quota.Decision{{Allowed: true, Remaining: 7}}
		keeping := store(func(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
			return kept, nil
		})
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(9)), Store: keeping}).Wrap(new(ok))
		other := limit(t, quota.PerHour(100)).Wrap(new(ok))
		for range 20 {
			ask(h, "GET", "/")
			ask(other, "GET", "/")
			require.Equal(t, int64(7), kept[0].Remaining)
		}
	})
}

func TestEachRuleHasItsFailureMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		per := []quota.Policy{quota.PerHour(1)}
		rules := []serverside.Rule{
			{Name: "inherits", Pattern: "/inherits", Policies: per},
			{Name: "closed", Pattern: "/closed", Policies: per, OnStoreError: serverside.FailClosed},
			{Name: "local", Pattern: "/local", Policies: per, OnStoreError: serverside.FailLocal},
			{Name: "open", Pattern: "/open", Policies: per, OnStoreError: serverside.FailOpen},
			{Name: "dry", Pattern: "/dry", Policies: per, OnStoreError: serverside.FailClosed, DryRun: true},
		}
		for _, c := range []struct {
			mode serverside.FailureMode
			want map[string][2]int // statuses of the first and the second request
		}{
			{
				serverside.FailOpen,
				map[string][2]int{
					"/inherits": {200, 200}, "/closed": {503, 503}, "/local": {200, 429}, "/open": {200, 200},
					"/dry": {200, 200},
				},
			},
			{0, map[string][2]int{"/inherits": {200, 429}, "/closed": {503, 503}, "/open": {200, 200}}},
			{
				serverside.FailClosed,
				map[string][2]int{"/inherits": {503, 503}, "/local": {200, 429}, "/open": {200, 200}, "/dry": {200, 200}},
			},
			{serverside.FailLocal, map[string][2]int{"/inherits": {200, 429}, "/closed": {503, 503}, "/open": {200, 200}}},
		} {
			open := func(e serverside.Event) {
				assert.NotZero(t, e.Mode|serverside.FailureMode(e.Kind-serverside.StoreFailed), "what is done is said")
			}
			h := must(t, serverside.Config{Rules: rules, Store: store(down), OnStoreError: c.mode, Audit: open}).Wrap(new(ok))
			for target, codes := range c.want {
				assert.Equal(t, codes, [2]int{ask(h, "GET", target).Code, ask(h, "GET", target).Code}, "%v %s", c.mode, target)
			}
		}
	})
}

func TestStrictestFailureModeDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := func(name string, mode serverside.FailureMode) serverside.Rule {
			return serverside.Rule{Name: name, Policies: []quota.Policy{quota.PerHour(1)}, OnStoreError: mode}
		}
		open, local, closed := rule("open", serverside.FailOpen), rule("local", serverside.FailLocal),
			rule("closed", serverside.FailClosed)
		for _, rules := range [][]serverside.Rule{{open, local}, {local, open}} {
			h := must(t, serverside.Config{Rules: rules, Store: store(down)}).Wrap(new(ok))
			w := ask(h, "GET", "/")
			assert.Equal(t, `"local";q=1;w=3600;heed-algorithm=token-bucket`, w.Header().Get("RateLimit-Policy"),
				"the other rule counted nothing")
			assert.Equal(t, 429, ask(h, "GET", "/").Code)
		}
		for _, rules := range [][]serverside.Rule{{open, local, closed}, {closed, local, open}} {
			var events eventLog
			h := must(t, serverside.Config{Rules: rules, Store: store(down), Audit: events.add}).Wrap(new(ok))
			assert.Equal(t, 503, ask(h, "GET", "/").Code)
			assert.Equal(t, "closed", events.events[0].Rule)
			assert.ErrorIs(t, events.events[0].Err, errDown)
		}
	})
}

func TestOutageEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var memory quota.Memory
		var up atomic.Bool
		starting := store(func(
			ctx context.Context, dst []quota.Decision, charges ...quota.Charge,
		) ([]quota.Decision, error) {
			if !up.Load() {
				return nil, errDown
			}
			return memory.Take(ctx, dst, charges...)
		})
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1)), Store: starting, OnStoreError: serverside.FailOpen,
		}).Wrap(new(ok))
		spend(t, h, 3)
		up.Store(true)
		spend(t, h, 1)
		assert.Equal(t, 429, ask(h, "GET", "/").Code)
	})
}

func TestHangingStoreGathersNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		release := make(chan struct{})
		var memory quota.Memory
		hanging := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			asked.Add(1)
			<-release
			return memory.Take(ctx, dst, charges...)
		})
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1000)), Store: hanging, StoreTimeout: time.Millisecond,
			OnStoreError: serverside.FailOpen,
		}).Wrap(new(ok))
		start := time.Now()
		spend(t, h, 1000)
		assert.Equal(t, int64(128), asked.Load())
		assert.Equal(t, 128*time.Millisecond, time.Since(start), "the others did not wait")

		close(release)
		synctest.Wait()
		w := ask(h, "GET", "/")
		assert.Equal(t, "871", w.Header().Get("X-RateLimit-Remaining"), "it is asked again; what was left behind counted")
	})
}

func TestGoroutinesWaitingForTheStoreAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		hanging := store(func(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
			asked.Add(1)
			time.Sleep(time.Hour)
			return nil, errDown
		})
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(10_000)), Store: hanging,
		}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		var all sync.WaitGroup
		for range 3_000 {
			all.Go(func() { assert.Equal(t, 200, ask(h, "GET", "/").Code) })
		}
		all.Wait()
		assert.LessOrEqual(t, asked.Load(), int64(2048))
		time.Sleep(2 * time.Hour)
	})
}

func TestFailLocalStartsWithWhatThisProcessAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		var memory quota.Memory
		failing := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			if gone.Load() {
				return nil, errDown
			}
			return memory.Take(ctx, dst, charges...)
		})
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerMinute(60)), Store: failing, OnStoreError: serverside.FailLocal,
		}).Wrap(new(ok))
		spend(t, h, 60)
		assert.Equal(t, 429, ask(h, "GET", "/").Code)
		gone.Store(true)
		assert.Equal(t, 429, ask(h, "GET", "/").Code)
		time.Sleep(time.Second)
		spend(t, h, 1)
		assert.Equal(t, 429, ask(h, "GET", "/").Code)
	})
}

func TestDisconnectedClientIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var memory quota.Memory
		heeding := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return memory.Take(ctx, dst, charges...)
		})
		for _, s := range []quota.Store{nil, heeding} {
			h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(2)), Store: s}).Wrap(new(ok))
			r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			assert.Equal(t, 200, serve(h, r).Code)
			assert.Equal(t, 200, serve(h, r).Code)
			assert.Equal(t, 429, serve(h, r).Code)
		}
	})
}

func TestStoreIsAskedOnceWithADeadlineAndContextValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type name struct{}
		calls := 0
		looking := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			calls++
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, time.Second, time.Until(deadline))
			assert.Equal(t, "value", ctx.Value(name{}))
			for i, want := range []string{"a/1h", "a/24h", "b/1h"} {
				assert.Equal(t, want, charges[i].Limit.Name())
				assert.Equal(t, "192.0.2.1", charges[i].Key)
				assert.Equal(t, int64(1), charges[i].N)
			}
			return nil, errDown
		})
		rules := []serverside.Rule{
			{Name: "a", Policies: []quota.Policy{quota.PerHour(1), quota.PerDay(1)}},
			{Name: "b", Policies: []quota.Policy{quota.PerHour(1)}},
		}
		h := must(t, serverside.Config{Rules: rules, Store: looking, StoreTimeout: time.Second}).Wrap(new(ok))
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), name{}, "value"), "GET", "/", nil)
		serve(h, r)
		assert.Equal(t, 1, calls)
	})
}

func TestForeignStoreUnderLoadCountsExactly(t *testing.T) {
	var memory quota.Memory
	foreign := store(memory.Take)
	h := must(t, serverside.Config{
		Rules: oneRule(quota.PerDay(100)), Store: foreign, StoreTimeout: time.Minute,
	}).Wrap(http.HandlerFunc(bare))
	var group sync.WaitGroup
	var admitted atomic.Int64
	for range 1000 {
		group.Go(func() {
			if ask(h, "GET", "/").Code == 204 {
				admitted.Add(1)
			}
		})
	}
	group.Wait()
	assert.Equal(t, int64(100), admitted.Load())
}

func TestStoreErrorWrapsTheStoresError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1)), Store: store(down), Audit: events.add,
		}).Wrap(new(ok))
		ask(h, "GET", "/")
		assert.True(t, errors.Is(events.events[0].Err, errDown))
	})
}
