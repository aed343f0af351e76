package heed_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

const key = "http://api.example.com"

// withdrawn counts the retries that b allows for key at once.
func withdrawn(b heed.Budget, key string) (n int) {
	for b.Withdraw(context.Background(), key) {
		n++
	}
	return n
}

func deposit(b heed.Budget, key string, n int) {
	for range n {
		b.Deposit(context.Background(), key)
	}
}

func TestALocalBudgetThroughTime(t *testing.T) {
	type moment struct {
		at       time.Duration
		deposits int
		want     int // retries that are allowed then, all of which are taken
	}
	for name, c := range map[string]struct {
		budget  *heed.LocalBudget
		moments []moment
	}{
		"the zero value": {&heed.LocalBudget{}, []moment{
			{0, 0, 10}, // the floor: one a second for ten seconds
			{0, 9, 0},
			{0, 1, 1}, // ten requests earn one
			{time.Second, 0, 1},
			{1500 * time.Millisecond, 0, 0},
			{2 * time.Second, 5, 1}, // and half a retry is left
			{2 * time.Second, 5, 1},
			{time.Hour, 0, 10},
		}},
		"deposits expire": {&heed.LocalBudget{MinPerSecond: -1}, []moment{
			{0, 100, 0 + 10},
			{0, 100, 10},
			{time.Second, 99, 9}, // 0.9 left
			{9900 * time.Millisecond, 1, 1},
			{11 * time.Second, 100, 10},
			{21 * time.Second, 0, 0},
		}},
		"an hour of successes earns no more than TTL's worth": {&heed.LocalBudget{MinPerSecond: -1, TTL: 2 * time.Second}, func() (m []moment) {
			for i := range 3600 {
				m = append(m, moment{time.Duration(i) * time.Second, 10, -1})
			}
			return append(m, moment{3600 * time.Second, 0, 1})
		}()},
		"a third": {&heed.LocalBudget{Ratio: 1.0 / 3, MinPerSecond: -1}, []moment{
			{0, 2, 0}, {0, 1, 1}, {0, 300, 100},
		}},
		"seven tenths": {&heed.LocalBudget{Ratio: 0.7, MinPerSecond: -1}, []moment{
			{0, 1, 0}, {0, 9, 7}, {0, 1000, 700},
		}},
		"more retries than requests": {&heed.LocalBudget{Ratio: 2.5, MinPerSecond: -1}, []moment{{0, 1, 2}, {0, 1, 3}}},
		"a slow floor":               {&heed.LocalBudget{Ratio: -1, MinPerSecond: 0.01}, []moment{{0, 50, 1}, {99 * time.Second, 0, 0}, {100 * time.Second, 0, 1}}},
		"a fast floor":               {&heed.LocalBudget{Ratio: -1, MinPerSecond: 1000, TTL: time.Second}, []moment{{0, 0, 1000}, {1500 * time.Microsecond, 0, 1}, {2 * time.Millisecond, 0, 1}}},
		"nothing":                    {&heed.LocalBudget{Ratio: -1, MinPerSecond: -1}, []moment{{0, 1000, 0}, {time.Hour, 1000, 0}}},
		"not a number":               {&heed.LocalBudget{Ratio: math.NaN(), MinPerSecond: math.NaN()}, []moment{{0, 1000, 0}}},
		"infinite":                   {&heed.LocalBudget{Ratio: math.Inf(1), MinPerSecond: -1, TTL: 1 << 62}, []moment{{0, 1, 10}}},
		"a short life":               {&heed.LocalBudget{MinPerSecond: -1, TTL: 1}, []moment{{0, 10, 1}, {time.Second, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, start := c.budget, time.Now()
				for _, m := range c.moments {
					time.Sleep(time.Until(start.Add(m.at)))
					deposit(b, key, m.deposits)
					if m.want < 0 {
						continue
					}
					assert.InDelta(t, m.want, math.Floor(b.Balance(key)+1e-6), 0, "balance at %v", m.at)
					assert.Equal(t, m.want, withdrawn(b, key), "at %v", m.at)
				}
			})
		})
	}
}

// A floor that is looked at all the time fills as fast as one that is not.
func TestAFloorLosesNothingToRounding(t *testing.T) {
	for _, perSecond := range []float64{0.001, 0.3, 0.5, 1, 3.7, 1000} {
		synctest.Test(t, func(t *testing.T) {
			b := &heed.LocalBudget{Ratio: -1, MinPerSecond: perSecond}
			withdrawn(b, key)
			before := b.Balance(key)
			for range 3000 {
				time.Sleep(time.Nanosecond)
				b.Balance(key)
				b.Balance(key)
			}
			assert.InDelta(t, perSecond*3000, (b.Balance(key)-before)*1e9, 1+perSecond, "%v a second, in billionths", perSecond)
		})
	}
}

func TestALocalBudgetKeepsKeysApart(t *testing.T) {
	var b heed.LocalBudget
	deposit(&b, "a", 100)
	assert.Equal(t, 20, withdrawn(&b, "a"))
	assert.Equal(t, 10, withdrawn(&b, "b"))
	assert.EqualValues(t, 10, b.Balance("c"))
}

func TestARefundMayBeSpentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBudget
		assert.Equal(t, 10, withdrawn(&b, key))
		b.Refund(t.Context(), key)
		assert.Equal(t, 1, withdrawn(&b, key))

		deposit(&b, key, 10)
		assert.True(t, b.Withdraw(t.Context(), key))
		time.Sleep(time.Hour) // the floor is full again
		b.Refund(t.Context(), key)
		assert.Equal(t, 11, withdrawn(&b, key))
	})
}

func TestALocalBudgetCountsExactlyUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where time stands still
		b := &heed.LocalBudget{}
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 1000 {
					b.Deposit(t.Context(), key)
				}
			})
		}
		wg.Wait()
		for range 50 {
			wg.Go(func() {
				for range 1000 {
					b.Deposit(t.Context(), key)
					if b.Withdraw(t.Context(), key) {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		allowed.Add(int64(withdrawn(b, key)))
		assert.EqualValues(t, 100_000/10+10, allowed.Load())
	})
}

func TestALocalBudgetForgetsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBudget
		for i := range 300 {
			assert.Equal(t, 10, withdrawn(&b, fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		for i := range 300 {
			deposit(&b, fmt.Sprint("new", i), 1)
		}
		assert.LessOrEqual(t, b.Keys(), 512)
		assert.EqualValues(t, 10, b.Balance("0"))
	})
}

func TestTwoTransportsShareOneBudgetCountedExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, s := &heed.LocalBudget{}, newScript(unavailable)
		one, two := &heed.Transport{Base: s, Budget: budget}, &heed.Transport{Base: s, Budget: budget}
		one.Retry.Backoff = func(heed.Attempt) time.Duration { return 0 }
		two.Retry.Backoff = one.Retry.Backoff
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { status(t, []*heed.Transport{one, two}[i%2], get(t.Context())) })
		}
		wg.Wait()
		assert.Equal(t, 1000+100+10, s.count())
	})
}

func TestAThousandRequestsAgainstAnOutage(t *testing.T) { // F009
	synctest.Test(t, func(t *testing.T) {
		s := newScript(unavailable)
		tr := &heed.Transport{Base: s}
		start := time.Now()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { assert.Equal(t, 503, status(t, tr, get(t.Context()))) })
		}
		wg.Wait()
		seconds := int(time.Since(start)/time.Second) + 1
		assert.GreaterOrEqual(t, s.count(), 1110)
		assert.LessOrEqual(t, s.count(), 1110+seconds)
	})
}

// ledger is a Budget that writes down what it is asked.
type ledger struct {
	mu                             sync.Mutex
	deposits, withdrawals, refunds int
	key                            string
}

func (l *ledger) Deposit(_ context.Context, key string) {
	l.mu.Lock()
	l.deposits++
	l.key = key
	l.mu.Unlock()
}
func (l *ledger) Withdraw(context.Context, string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdrawals++
	return true
}
func (l *ledger) Refund(context.Context, string) { l.mu.Lock(); l.refunds++; l.mu.Unlock() }

func TestWhatARetryCosts(t *testing.T) { // B74
	for name, c := range map[string]struct {
		replies []reply
		want    int
	}{
		"an obeyed 429 costs nothing":           {[]reply{throttle("1"), throttle("1"), ok}, 0},
		"an obeyed 403 costs nothing":           {[]reply{{status: 403, header: []string{"Retry-After", "1"}}, ok}, 0},
		"a 503 costs one, with a hint":          {[]reply{{status: 503, header: []string{"Retry-After", "1"}}, ok}, 1},
		"a 503 costs one, without":              {[]reply{unavailable, ok}, 1},
		"a 429 without a hint costs one":        {[]reply{{status: 429}, ok}, 1},
		"a 429 that asks for none costs one":    {[]reply{throttle("0"), ok}, 1},
		"a broken connection costs one":         {[]reply{{err: errBroken}, ok}, 1},
		"the last attempt costs nothing":        {[]reply{unavailable}, 3},
		"what is not worth it costs nothing":    {[]reply{{status: 404}}, 0},
		"a wait that is too long costs nothing": {[]reply{{status: 503, header: []string{"Retry-After", "61"}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{}
				status(t, &heed.Transport{Base: newScript(c.replies...), Budget: l}, get(t.Context()))
				assert.Equal(t, c.want, l.withdrawals)
				assert.Equal(t, 1, l.deposits, "one deposit for each request")
				assert.Equal(t, 0, l.refunds)
				assert.Equal(t, key, l.key)
			})
		})
	}
}

func TestUnlimitedRefusesNothing(t *testing.T) {
	assert.True(t, heed.Unlimited.Withdraw(t.Context(), key))
	heed.Unlimited.Deposit(t.Context(), key)
	heed.Unlimited.Refund(t.Context(), key)
}
