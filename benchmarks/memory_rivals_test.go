package benchmarks_test

import (
	"context"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed/quota"
)

const day = 24 * time.Hour

// decide reports whether a request of a key is admitted.
type decide func(key string) (bool, error)

// A counter is a library that counts in memory.
type counter struct {
	name    string
	denies  bool // it can refuse a request
	races   bool // concurrent calls may get an error
	keyless bool // it has no keys; x/time/rate stands for such libraries

	// open returns a limiter that admits each key limit times at once, and hardly more for the
	// rest of the day.
	open func(tb testing.TB, keys, limit int) decide
}

var counters = []counter{
	{name: "bare", open: openBare},
	{name: "heed", open: openMemory, denies: true},
	{name: "simple", open: openSimple, denies: true},
	{name: "x/time/rate", open: openRate, denies: true},
	{name: "go-limiter", open: openGoLimiter, denies: true},
	{name: "throttled", open: openThrottled, denies: true, races: true},
	{name: "throttled-map", open: openThrottledMap, denies: true, races: true},
	{name: "ulule", open: openUlule, denies: true},
	{name: "httprate", open: openHttprate, denies: true},
	{name: "tollbooth", open: openTollbooth, denies: true},
	{name: "uber", open: openUber, keyless: true},
	{name: "failsafe", open: openFailsafe, denies: true, keyless: true},
}

var background = context.Background()

func compile(tb testing.TB, p quota.Policy) *quota.Limit {
	l, err := p.Compile()
	require.NoError(tb, err)
	return l
}

func openMemory(tb testing.TB, keys, limit int) decide {
	store := &quota.Memory{MaxKeys: max(1<<16, keys)}
	l := compile(tb, quota.PerDay(int64(limit)))
	tb.Cleanup(func() { require.Zero(tb, store.Forgotten()) })
	return func(key string) (bool, error) {
		var few [1]quota.Decision
		ds, err := store.Take(background, few[:0], quota.Charge{Key: key, Limit: l})
		return err == nil && ds[0].Allowed, err
	}
}

// openBare is the least that a library must do, and refuses nothing: it keeps 16 bytes for each
// key, reads a word of them, reads the clock, and writes the word. In parallel, most of the time
// a cache line travels between processors, so a library with a mutex for each key can be faster.
func openBare(_ testing.TB, keys, _ int) decide {
	kept, seed, start := make([][2]atomic.Int64, keys), maphash.MakeSeed(), time.Now()
	return func(key string) (bool, error) {
		word := &kept[maphash.String(seed, key)%uint64(keys)][1]
		before := word.Load()
		word.Swap(max(before, int64(time.Since(start))) + 1)
		return true, nil
	}
}

// forEachKey gives a library without keys a limiter for each key. For one key it is that limiter
// alone.
func forEachKey[L any](keys int, newLimiter func() L, allow func(L) bool) decide {
	if keys == 1 {
		only := newLimiter()
		return func(string) (bool, error) { return allow(only), nil }
	}
	var limiters sync.Map
	return func(key string) (bool, error) {
		found, ok := limiters.Load(key)
		if !ok {
			found, _ = limiters.LoadOrStore(key, newLimiter())
		}
		return allow(found.(L)), nil
	}
}

func openRate(_ testing.TB, keys, limit int) decide {
	every := rate.Every(day / time.Duration(limit))
	return forEachKey(keys, func() *rate.Limiter { return rate.NewLimiter(every, limit) }, (*rate.Limiter).Allow)
}

func openUber(_ testing.TB, keys, _ int) decide { // sleeps if it is too fast, which never happens here
	take := func(l uber.Limiter) bool { l.Take(); return true }
	return forEachKey(keys, func() uber.Limiter { return uber.New(lots) }, take)
}

func openFailsafe(_ testing.TB, keys, limit int) decide {
	return forEachKey(keys, func() ratelimiter.RateLimiter[any] { return ratelimiter.NewBursty[any](uint(limit), day) },
		ratelimiter.RateLimiter[any].TryAcquirePermit)
}

func openGoLimiter(tb testing.TB, _, limit int) decide {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(limit), Interval: day})
	require.NoError(tb, err)
	tb.Cleanup(func() { store.Close(background) })
	return func(key string) (bool, error) {
		_, _, _, ok, err := store.Take(background, key)
		return ok, err
	}
}

func openThrottled(tb testing.TB, keys, limit int) decide {
	return throttledIn(tb, max(1<<16, 2*keys), limit)
}

func openThrottledMap(tb testing.TB, _, limit int) decide { // never evicts a key
	return throttledIn(tb, 0, limit)
}

func throttledIn(tb testing.TB, maxKeys, limit int) decide {
	store, err := memstore.NewCtx(maxKeys)
	require.NoError(tb, err)
	l, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(limit))
	require.NoError(tb, err)
	return func(key string) (bool, error) {
		denied, _, err := l.RateLimitCtx(background, key, 1)
		return !denied, err
	}
}

// throttledQuota admits limit at once: MaxBurst does not count the first.
func throttledQuota(limit int) throttled.RateQuota {
	return throttled.RateQuota{MaxRate: throttled.PerDay(limit), MaxBurst: limit - 1}
}

func openUlule(_ testing.TB, _, limit int) decide {
	l := ulule.New(memory.NewStore(), ulule.Rate{Period: day, Limit: int64(limit)})
	return func(key string) (bool, error) {
		answer, err := l.Get(background, key)
		return !answer.Reached, err
	}
}

// openHttprate uses the counter of httprate as its limiter does: with two windows and a mutex.
func openHttprate(_ testing.TB, _, limit int) decide {
	var mu sync.Mutex
	counter := httprate.NewLocalLimitCounter(day)
	return func(key string) (bool, error) {
		now := time.Now().UTC()
		window := now.Truncate(day)
		mu.Lock()
		defer mu.Unlock()
		these, those, err := counter.Get(key, window, window.Add(-day))
		spent := float64(those)*(day-now.Sub(window)).Seconds()/day.Seconds() + float64(these)
		if err != nil || int(math.Round(spent)) >= limit {
			return false, err
		}
		return true, counter.IncrementBy(key, window, 1)
	}
}

func openTollbooth(_ testing.TB, _, limit int) decide {
	l := tollbooth.NewLimiter(float64(limit)/day.Seconds(), nil)
	l.SetBurst(limit)
	return func(key string) (bool, error) { return !l.LimitReached(key), nil }
}
