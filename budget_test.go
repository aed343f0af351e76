package heed_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

const key = "http://api.example.com"

// withdrawn withdraws until b refuses, and returns how many retries it allowed.
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

func succeed(b *heed.LocalBudget, key string, n int) {
	for range n {
		b.Success(context.Background(), key)
	}
}

func TestLocalBudgetAllowsWhatWasEarned(t *testing.T) {
	type moment struct {
		at                  time.Duration
		deposits, successes int
		want                int // how many retries are allowed and taken; -1 to take none
	}
	for name, c := range map[string]struct {
		budget  *heed.LocalBudget
		moments []moment
	}{
		"the zero value": {&heed.LocalBudget{}, []moment{
			{0, 0, 0, 3}, // a new key has three
			{0, 9, 0, 0},
			{0, 1, 0, 1}, // ten requests earn one
			{time.Minute, 0, 0, 0},
			{time.Minute, 0, 1, 1}, // a success earns one
			{time.Minute, 5, 0, 0},
			{time.Minute, 5, 0, 1},
			{2 * time.Minute, 0, 10, 10}, // at most ten: one a second for ten seconds
			{2 * time.Minute, 0, 3, 3},
			{2 * time.Minute, 0, 1, 1},
			{2 * time.Minute, 0, 1000, 6}, // at most twice that within TTL
			{2*time.Minute + 9*time.Second, 0, 1000, 0},
			{2*time.Minute + 10*time.Second, 0, 1000, 10},
		}},
		"what successes earn expires, but for three": {&heed.LocalBudget{Ratio: -1}, []moment{
			{0, 0, 4, -1},
			{9 * time.Second, 0, 0, 7},
			{9 * time.Second, 0, 5, -1},
			{20 * time.Second, 0, 0, 3},
			{20 * time.Second, 0, 3, -1},
			{time.Hour, 0, 0, 3},
		}},
		"successes add nothing to a floor that requests have filled": {&heed.LocalBudget{}, []moment{
			{0, 0, 0, 3},
			{0, 70, 0, -1},
			{0, 30, 1000, 13}, // but for what was spent of the three
		}},
		"after an hour a key is as new": {&heed.LocalBudget{}, []moment{
			{0, 1, 0, 3}, {59 * time.Minute, 1, 0, 0}, {2 * time.Hour, 1, 0, 3},
		}},
		"a fifth of a second's worth at a time": {&heed.LocalBudget{Ratio: -1, MinPerSecond: 5, TTL: time.Second}, []moment{
			{0, 0, 100, 5}, {time.Second, 0, 100, 5}, {1500 * time.Millisecond, 0, 4, 4}, {1500 * time.Millisecond, 0, 4, 1},
		}},
		"deposits expire": {&heed.LocalBudget{MinPerSecond: -1}, []moment{
			{0, 100, 0, 10},
			{0, 100, 0, 10},
			{time.Second, 99, 0, 9}, // 0.9 left
			{9900 * time.Millisecond, 1, 0, 1},
			{11 * time.Second, 100, 0, 10},
			{21 * time.Second, 0, 0, 0},
		}},
		"an hour of requests earns no more than TTL's worth": {&heed.LocalBudget{MinPerSecond: -1, TTL: 2 * time.Second},
			func() (m []moment) {
				for i := range 3600 {
					m = append(m, moment{time.Duration(i) * time.Second, 10, 0, -1})
				}
				return append(m, moment{3600 * time.Second, 0, 0, 1})
			}()},
		"a third": {&heed.LocalBudget{Ratio: 1.0 / 3, MinPerSecond: -1}, []moment{
			{0, 2, 0, 0}, {0, 1, 0, 1}, {0, 300, 0, 100},
		}},
		"seven tenths": {&heed.LocalBudget{Ratio: 0.7, MinPerSecond: -1}, []moment{
			{0, 1, 0, 0}, {0, 9, 0, 7}, {0, 1000, 0, 700},
		}},
		"more retries than requests": {&heed.LocalBudget{Ratio: 2.5, MinPerSecond: -1},
			[]moment{{0, 1, 0, 2}, {0, 1, 0, 3}}},
		"a slow floor": {&heed.LocalBudget{Ratio: -1, MinPerSecond: 0.01},
			[]moment{{0, 50, 0, 3}, {time.Minute, 0, 50, 3}, {time.Minute, 50, 0, 0}}},
		"a fast floor": {&heed.LocalBudget{Ratio: -1, MinPerSecond: 1000, TTL: time.Second},
			[]moment{{0, 0, 2000, 1000}, {2 * time.Second, 0, 1, 1}}},
		"nothing": {&heed.LocalBudget{Ratio: -1, MinPerSecond: -1},
			[]moment{{0, 1000, 1000, 0}, {time.Hour, 1000, 1000, 0}}},
		"not a number": {&heed.LocalBudget{Ratio: math.NaN(), MinPerSecond: math.NaN()}, []moment{{0, 1000, 1000, 0}}},
		"infinite":     {&heed.LocalBudget{Ratio: math.Inf(1), MinPerSecond: -1, TTL: 1 << 62}, []moment{{0, 1, 0, 10}}},
		"a short life": {&heed.LocalBudget{MinPerSecond: -1, TTL: 1}, []moment{{0, 10, 0, 1}, {time.Second, 0, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, start := c.budget, time.Now()
				for i, m := range c.moments {
					time.Sleep(time.Until(start.Add(m.at)))
					deposit(b, key, m.deposits)
					succeed(b, key, m.successes)
					if m.want < 0 {
						continue
					}
					assert.InDelta(t, m.want, math.Floor(b.Balance(key)+1e-6), 0, "balance, moment %d", i)
					assert.Equal(t, m.want, withdrawn(b, key), "moment %d", i)
				}
			})
		})
	}
}

func TestLocalBudgetCountsEachKeySeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // because deposits expire
		var b heed.LocalBudget
		deposit(&b, "a", 100)
		assert.Equal(t, 13, withdrawn(&b, "a"))
		assert.Equal(t, 3, withdrawn(&b, "b"))
		assert.EqualValues(t, 3, b.Balance("c"))
	})
}

func refund(b heed.Budget, key string, n int) {
	for range n {
		b.Refund(context.Background(), key)
	}
}

func TestARefundUndoesAWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBudget
		refund(&b, key, 5)
		assert.Equal(t, 3, withdrawn(&b, key), "nothing was withdrawn before")
		refund(&b, key, 1)
		assert.Equal(t, 1, withdrawn(&b, key))
		refund(&b, key, 5)
		assert.Equal(t, 3, withdrawn(&b, key), "never more than was withdrawn")

		succeed(&b, key, 20)
		assert.Equal(t, 10, withdrawn(&b, key))
		succeed(&b, key, 5)
		refund(&b, key, 10)
		assert.EqualValues(t, 15, b.Balance(key), "more than a floor of ten")
		time.Sleep(10 * time.Second)
		refund(&b, key, 10)
		assert.EqualValues(t, 3, b.Balance(key), "what has expired does not come back")
	})
}

// A server fails a third of its requests for an hour, and all calls end well. Their retries must not
// pile up: at most TTL's deposits, the floor and the three are there for an outage.
func TestRefundsOfAnHourDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBudget
		retries := 0
		for range 3600 {
			deposit(&b, key, 100)
			for retries = 0; retries < 50 && b.Withdraw(t.Context(), key); {
				retries++
			}
			time.Sleep(time.Second)
			refund(&b, key, retries)
			succeed(&b, key, 100)
		}
		assert.Equal(t, 50, retries, "each call that needs one")
		assert.InDelta(t, 100, b.Balance(key), 10)
	})
}

// A budgetModel keeps every deposit and every success, with what is spent of it.
type budgetModel struct {
	unit, floor float64
	coins       []coin
	spent       float64 // of three
}

type coin struct {
	tenth       int64
	left, spent float64
	success     bool
}

func (m *budgetModel) expire(tenth int64) {
	m.coins = slices.DeleteFunc(m.coins, func(c coin) bool { return c.tenth <= tenth-10 })
}

func (m *budgetModel) balance() (n float64) {
	for _, c := range m.coins {
		n += c.left
	}
	return n + 3 - m.spent
}

func (m *budgetModel) succeed(tenth int64) {
	earned := 0.
	for _, c := range m.coins {
		if c.success {
			earned += c.left + c.spent
		}
	}
	n := max(0, min(1, max(m.floor-m.balance(), m.spent), 2*m.floor-earned))
	part := min(n, m.spent)
	m.spent -= part
	m.coins = append(m.coins, coin{tenth, n - part, part, true})
}

func (m *budgetModel) withdraw() bool {
	if m.balance() < 1 {
		return false
	}
	rest := 1.
	for i := range m.coins {
		part := min(rest, m.coins[i].left)
		m.coins[i].left, m.coins[i].spent, rest = m.coins[i].left-part, m.coins[i].spent+part, rest-part
	}
	m.spent += rest
	return true
}

func (m *budgetModel) refund() {
	rest := 1 - min(1, m.spent)
	m.spent -= 1 - rest
	for i := range slices.Backward(m.coins) {
		part := min(rest, m.coins[i].spent)
		m.coins[i].left, m.coins[i].spent, rest = m.coins[i].left+part, m.coins[i].spent-part, rest-part
	}
}

func TestLocalBudgetAgreesWithAModel(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			ttl := time.Second << r.IntN(4)
			// Binary fractions, whose sums are exact in the model, too.
			m := budgetModel{unit: float64(1+r.IntN(32)) / 16, floor: float64(3 + r.IntN(8))}
			b := &heed.LocalBudget{Ratio: m.unit, MinPerSecond: m.floor / ttl.Seconds(), TTL: ttl}
			for step := range 1000 {
				time.Sleep(time.Duration(r.Int64N(2 * int64(ttl) >> r.IntN(10))))
				tenth := int64(heed.Now() / (ttl / 10))
				m.expire(tenth)
				switch r.IntN(4) {
				case 0:
					b.Deposit(t.Context(), key)
					m.coins = append(m.coins, coin{tenth: tenth, left: m.unit})
				case 1:
					succeed(b, key, 1)
					m.succeed(tenth)
				case 2:
					require.Equal(t, m.withdraw(), b.Withdraw(t.Context(), key), "seed %d, step %d", seed, step)
				case 3:
					b.Refund(t.Context(), key)
					m.refund()
				}
				require.InDelta(t, m.balance(), b.Balance(key), 1e-6, "seed %d, step %d", seed, step)
			}
		})
	}
}

func TestLocalBudgetCountsExactlyUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
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
				for i := range 1000 {
					b.Deposit(t.Context(), key)
					switch ok := b.Withdraw(t.Context(), key); {
					case ok && i%3 == 0:
						b.Refund(t.Context(), key)
					case ok:
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		allowed.Add(int64(withdrawn(b, key)))
		assert.EqualValues(t, 100_000/10+3, allowed.Load())
	})
}

func TestLocalBudgetDropsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBudget
		for i := range 300 {
			deposit(&b, fmt.Sprint(i), 1)
			assert.Equal(t, 3, withdrawn(&b, fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		for i := range 300 {
			deposit(&b, fmt.Sprint("busy", i), 10)
		}
		assert.Equal(t, 600, b.Keys())
		time.Sleep(time.Hour)
		for i := range 500 {
			deposit(&b, fmt.Sprint("new", i), 1)
		}
		assert.Equal(t, 500, b.Keys())
		assert.EqualValues(t, 3, b.Balance("0"))
	})
}

func TestReadingABalanceChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBudget
		deposit(&b, key, 5)
		for i := range 100 {
			assert.EqualValues(t, 3.5, b.Balance(key))
			assert.EqualValues(t, 3, b.Balance(fmt.Sprint("new", i)))
		}
		assert.Equal(t, 1, b.Keys())
		assert.Equal(t, 3, withdrawn(&b, key))
		assert.EqualValues(t, 0.5, b.Balance(key))
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
		assert.Equal(t, 1000+100+3, s.count())
	})
}

func TestRetriesOfAnOutageStayWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(unavailable)
		tr := &heed.Transport{Base: s}
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { assert.Equal(t, 503, status(t, tr, get(t.Context()))) })
		}
		wg.Wait()
		assert.Equal(t, 1000+100+3, s.count())
	})
}

// An outage has many clients of a server that works for a while and then fails. Together the
// clients make a hundred calls a second. The experiment is from Marc Brooker, "Fixing retries with
// token buckets and circuit breakers" (2022), "The effect of client count", with four attempts and
// no backoff.
type outage struct {
	clients         int
	healthy, broken time.Duration
	failing         float64 // share of the attempts that fail in the broken part
}

// run returns the calls during the outage, their attempts, and how many calls were lost.
func (o outage) run(t *testing.T) (calls, attempts, lost int) {
	random, start := rand.New(rand.NewPCG(uint64(o.clients), 7)), time.Now()
	sent := 0
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		sent++
		if time.Since(start) >= o.healthy && random.Float64() < o.failing {
			return response(req, unavailable), nil
		}
		return response(req, ok), nil
	})
	clients := make([]*heed.Transport, o.clients)
	for i := range clients {
		clients[i] = &heed.Transport{Base: base, Retry: heed.RetryPolicy{Backoff: constant(0)}}
	}
	for {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(10*time.Millisecond)))
		since := time.Since(start)
		if since >= o.healthy+o.broken {
			return calls, attempts, lost
		}
		before := sent
		code := status(t, clients[random.IntN(o.clients)], get(t.Context()))
		if since >= o.healthy {
			calls, attempts = calls+1, attempts+sent-before
			if code != 200 {
				lost++
			}
		}
	}
}

func TestSmallClientsTogetherRetryLittleInAnOutage(t *testing.T) {
	for _, clients := range []int{10, 100, 1000} {
		for _, healthy := range []time.Duration{0, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				calls, attempts, _ := outage{clients, healthy, 5 * time.Minute, 1}.run(t)
				perCall := float64(attempts) / float64(calls)
				t.Logf("%d clients after %v: %.3f requests a call", clients, healthy, perCall)
				assert.Greater(t, perCall, 1.05, "some are retried")
				assert.LessOrEqual(t, perCall, 1.2)
			})
		}
	}
}

func TestSmallClientsLoseNoCallsToRareFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, attempts, lost := outage{1000, 0, 90 * time.Second, 0.03}.run(t)
		assert.Zero(t, lost)
		assert.InDelta(t, 1.03, float64(attempts)/float64(calls), 0.01)
	})
}

// countingBudget counts the calls of its methods and allows every retry.
type countingBudget struct {
	mu                             sync.Mutex
	deposits, withdrawals, refunds int
	successes                      int
	key                            string
}

func (l *countingBudget) Deposit(_ context.Context, key string) {
	l.mu.Lock()
	l.deposits++
	l.key = key
	l.mu.Unlock()
}
func (l *countingBudget) Withdraw(context.Context, string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdrawals++
	return true
}
func (l *countingBudget) Refund(context.Context, string) { l.mu.Lock(); l.refunds++; l.mu.Unlock() }

func (l *countingBudget) Success(context.Context, string) { l.mu.Lock(); l.successes++; l.mu.Unlock() }

func TestSuccessIsCalledOnlyForWorkingServers(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		replies []reply
		want    int
	}{
		"200":                    {"GET", []reply{ok}, 1},
		"404":                    {"GET", []reply{{status: 404}}, 1},
		"a 200 after a 503":      {"GET", []reply{unavailable, ok}, 1},
		"a 200 after a 429":      {"GET", []reply{{status: 429}, ok}, 1},
		"503 each time":          {"GET", []reply{unavailable}, 0},
		"429 each time":          {"GET", []reply{{status: 429}}, 0},
		"a 403 that is a limit":  {"GET", []reply{{status: 403, header: []string{"Retry-After", "3600"}}}, 0},
		"a POST that got a 503":  {"POST", []reply{unavailable}, 0},
		"501, which is final":    {"GET", []reply{{status: 501}}, 0},
		"an error":               {"GET", []reply{{err: errBroken}}, 0},
		"a 200 after two errors": {"GET", []reply{{err: errBroken}, {err: errBroken}, ok}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, req := &countingBudget{}, get(t.Context())
			req.Method = c.method
			if resp, err := (&heed.Transport{Base: newScript(c.replies...), Budget: l}).RoundTrip(req); err == nil {
				resp.Body.Close()
			}
			assert.Equal(t, c.want, l.successes, name)
		})
	}
}

func TestRetriesCostBudgetUntilTheirCallEndsWell(t *testing.T) {
	refused := reply{err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}
	for name, c := range map[string]struct {
		replies              []reply
		withdrawals, refunds int
	}{
		"an obeyed 429 costs nothing":               {[]reply{throttle("1"), ok}, 0, 0},
		"but the next one, after nothing good":      {[]reply{throttle("1"), throttle("1"), ok}, 1, 1},
		"an obeyed 403 costs nothing":               {[]reply{{status: 403, header: []string{"Retry-After", "1"}}, ok}, 0, 0},
		"a 503 costs one, with a hint":              {[]reply{{status: 503, header: []string{"Retry-After", "1"}}, ok}, 1, 1},
		"a 503 costs one, without":                  {[]reply{unavailable, ok}, 1, 1},
		"a 429 without a hint costs one":            {[]reply{{status: 429}, ok}, 1, 1},
		"a 429 that asks for none costs one":        {[]reply{throttle("0"), ok}, 1, 1},
		"a broken connection costs one":             {[]reply{{err: errBroken}, ok}, 1, 1},
		"a refused connection costs nothing":        {[]reply{refused, refused, refused, refused, refused, ok}, 0, 0},
		"two costs, both given back":                {[]reply{unavailable, {status: 500}, {status: 404}}, 2, 2},
		"what ends in a 500 is not given back":      {[]reply{unavailable, {status: 501}}, 1, 0},
		"what ends in a refusal is not either":      {[]reply{unavailable, throttle("61")}, 1, 0},
		"the last attempt costs nothing":            {[]reply{{status: 500}}, 3, 0},
		"a final response costs nothing":            {[]reply{{status: 404}}, 0, 0},
		"a wait that is too long costs nothing":     {[]reply{{status: 503, header: []string{"Retry-After", "61"}}}, 0, 0},
		"a refused connection, after paid failures": {[]reply{unavailable, refused, {status: 500}, ok}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &countingBudget{}
				status(t, &heed.Transport{Base: newScript(c.replies...), Budget: l}, get(t.Context()))
				assert.Equal(t, c.withdrawals, l.withdrawals)
				assert.Equal(t, 1, l.deposits, "one deposit for each request")
				assert.Equal(t, c.refunds, l.refunds)
				assert.Equal(t, key, l.key)
			})
		})
	}
}

func TestARequestThatIsNeverSentEarnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		l := &countingBudget{}
		tr := &heed.Transport{Base: newScript(throttle("3600")), Budget: l}
		for range 1000 { // the first is sent, and starts a cool-down
			if resp, err := tr.RoundTrip(get(t.Context())); err == nil {
				resp.Body.Close()
			}
		}
		assert.Equal(t, 1, l.deposits, "999 were refused by the client itself")

		for name, c := range map[string]struct {
			tr  *heed.Transport
			ctx context.Context
		}{
			"drained":              {&heed.Transport{Base: newScript(ok)}, drainable(t, 0)},
			"refused by the pacer": {&heed.Transport{Base: newScript(ok), Pacer: deadlinePacer{}}, t.Context()},
			"cancelled in line":    {tr, cancelled},
		} {
			l := &countingBudget{}
			c.tr.Budget = l
			time.Sleep(time.Second)
			_, err := c.tr.RoundTrip(get(c.ctx))
			assert.ErrorIs(t, err, heed.ErrNotSent, name)
			assert.Zero(t, l.deposits, name)
		}

		local := &heed.LocalBudget{}
		tr = &heed.Transport{Base: newScript(throttle("3600")), Budget: local}
		for range 1000 {
			if resp, err := tr.RoundTrip(get(t.Context())); err == nil {
				resp.Body.Close()
			}
		}
		assert.InDelta(t, 3.1, local.Balance(key), 0.001)
	})
}

func TestUnlimitedAllowsEveryRetry(t *testing.T) {
	assert.True(t, heed.Unlimited.Withdraw(t.Context(), key))
	heed.Unlimited.Deposit(t.Context(), key)
	heed.Unlimited.Refund(t.Context(), key)
}
