package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
)

// A Budget is a retry budget that processes share through Redis: a heed.Budget. Like a
// heed.LocalBudget, it has every request earn a part of a retry, which may be spent for
// TTL, and a floor for clients that send few requests. But the floor fills with time,
// since there is only one: however many processes draw on one Budget, there is one ratio
// and one floor, counted exactly.
//
// Deposit and Refund are counted in the process and sent to Redis with the
// next Withdraw or at most a second later, so Deposit takes neither a lock nor
// a round trip. Withdraw is one round trip. There is nothing to close: a timer
// runs only while there is something to send.
//
// While Redis is lost, each process spends a share of its own, so that together
// they stay near one budget: the balance that Redis last answered, divided by the
// number of processes, for TTL; its part of the floor, from nothing; and what
// its own requests earn. What it spent of the first two is charged if Redis is back
// within TTL; later it would be void. A process that never reached Redis does not
// know how many others there are: its part of the floor is one retry, and one more
// each TTL.
//
// The first Withdraw to find Redis lost waits for Timeout; the following ones wait
// for nothing until Redis is back. Nothing is sent twice: deposits that were on their
// way to a Redis that did not answer are forgotten, and a retry that it may have
// charged is not charged again.
//
// The zero Budget is a lost one; set Client. Fields must not change once it is
// in use, and it must not be copied. It is safe for concurrent use.
type Budget struct {
	// Client is where the budget is kept. If nil, Redis counts as lost.
	Client redis.UniversalClient

	// Key names one budget for the requests to all hosts. If empty, each host
	// has a budget of its own, named after itself.
	Key string

	// Ratio is how many retries each request earns, rounded up to a billionth.
	// If zero, 0.1; if negative or NaN, none; above 100, 100.
	Ratio float64

	// MinPerSecond is how many retries a second are allowed however few
	// requests there are, rounded up to a millionth; at most MinPerSecond·TTL
	// of them, or one if that is less, at once, and never more than two million.
	// If zero, 1; if negative or NaN, none.
	MinPerSecond float64

	// TTL is how long a deposit may be spent, to a tenth of its length. If zero
	// or negative, 10 s; below 10 ms, 10 ms; above a day, a day.
	TTL time.Duration

	// Timeout is how long a Withdraw may take. If zero or negative, 50 ms.
	Timeout time.Duration

	// Degraded is called, if not nil, with the error of each call that Redis did not
	// answer as it should, and so for each host if Key is empty: the Budget then works
	// without it. It is called by the goroutine of a retry or of a timer, and must be
	// safe for concurrent use.
	Degraded func(err error)

	once     sync.Once // guards the making of redis
	redis    *client
	accounts keyed.Table[account]
}

// retry is the price of one retry, in units.
const retry = 1_000_000_000

//go:embed lua/budget.lua
var budgetSource string

var budgetScript = newScript(budgetSource)

// Deposit is called once for each request.
func (b *Budget) Deposit(_ context.Context, key string) {
	unit := b.unit()
	if unit == 0 {
		return
	}
	if a := b.account(key); a.earned.Add(unit) == unit {
		b.flushLater(a, key)
	}
}

// Withdraw is called once for each retry, and reports whether it may be sent.
// It does so within Timeout, and at once if ctx is over.
func (b *Budget) Withdraw(ctx context.Context, key string) bool {
	if ctx.Err() != nil {
		return false
	}
	a, charged := b.account(key), false
	if !a.isLost(b, key, monotonic()) {
		// A call that was cut short might have been counted all the same.
		granted, err := b.call(context.WithoutCancel(ctx), a, key, retry)
		if err == nil {
			return granted
		}
		charged = !unexecuted(err)
	}
	defer b.flushLater(a, key)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := monotonic()
	a.keepLocked(b.index(now))
	return a.share.withdraw(b, now, charged)
}

// Refund gives back a retry that was withdrawn and not sent.
func (b *Budget) Refund(_ context.Context, key string) {
	a := b.account(key)
	a.refunded.Add(retry)
	b.flushLater(a, key)
}

// An account is one budget, as this process knows it. What its requests earn is sent to
// Redis, or, while that is lost, added to the share.
type account struct {
	earned   atomic.Int64 // units to be sent
	refunded atomic.Int64 // units of retries that were not sent, to be sent
	armed    atomic.Bool  // a timer runs, or its flush does

	mu       sync.Mutex    // guards what follows
	lost     bool          // the last call failed
	silent   bool          // because there was no answer
	calledAt time.Duration // when it ended
	counted  int64         // the tenth, on Redis' clock, in which this process was counted
	share    share         // what may be spent while Redis is lost
}

// account returns that of key. One that is evicted still sends what it has to send.
func (b *Budget) account(key string) *account {
	if b.Key != "" {
		key = b.Key
	}
	return b.accounts.Get(hostkey.NameOf(key), func(a *account) keyed.State {
		return keyed.IdleIf(a.idle(b, monotonic()))
	})
}

// flushLater has what a is to send sent, if no Withdraw comes first.
func (b *Budget) flushLater(a *account, key string) {
	if a.armed.CompareAndSwap(false, true) {
		time.AfterFunc(b.interval(), func() { b.flush(a, key) })
	}
}

func (b *Budget) flush(a *account, key string) {
	if a.pending(b, monotonic()) {
		b.call(context.Background(), a, key, 0)
	}
	a.armed.Store(false)
	if a.pending(b, monotonic()) { // since, or still
		b.flushLater(a, key)
	}
}

// call has Redis pay price, and sends what is to be sent.
func (b *Budget) call(ctx context.Context, a *account, key string, price int64) (granted bool, err error) {
	r := a.request(b, monotonic())
	value, err := b.client().run(ctx, budgetScript, []string{b.name(key)},
		r.earned, r.refunded, r.owed, price, b.rate(), b.most(), b.tenth().Milliseconds(), r.counted)
	reply, err := parseBudgetReply(value, err)
	if err != nil {
		a.fail(b, r, err, monotonic())
		if b.Degraded != nil {
			b.Degraded(err)
		}
		return false, err
	}
	a.learn(b, reply, monotonic())
	if a.pending(b, monotonic()) {
		b.flushLater(a, key)
	}
	return reply.granted, nil
}

// A budgetRequest is what an account has to send, and a budgetReply what the script
// replies.
type (
	budgetRequest struct{ earned, refunded, owed, counted int64 }
	budgetReply   struct {
		granted   bool
		balance   int64
		begin     int64 // of the tenth, on Redis' clock
		processes int64
	}
)

// request takes what is to be sent from a. A lost Redis is sent nothing, because what
// it does not answer is gone.
func (a *account) request(b *Budget, now time.Duration) budgetRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := budgetRequest{counted: a.counted}
	if a.lost {
		a.keepLocked(b.index(now))
		return r
	}
	r.earned, r.refunded = a.earned.Swap(0), a.refunded.Swap(0)
	r.owed, a.share.owed = a.share.owed.sum(b.index(now)), tenths{}
	return r
}

// keepLocked moves to the share what cannot be sent.
func (a *account) keepLocked(index int64) {
	a.share.earned.add(index, a.earned.Swap(0)+a.refunded.Swap(0))
}

// fail takes back what r has not brought to Redis.
func (a *account) fail(b *Budget, r budgetRequest, err error, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost, a.silent, a.calledAt = true, !isAnswer(err), now
	if unexecuted(err) {
		a.earned.Add(r.earned)
		a.refunded.Add(r.refunded)
		a.share.owed.add(b.index(now), r.owed)
	}
}

func (a *account) learn(b *Budget, r budgetReply, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost, a.calledAt, a.counted = false, now, r.begin
	index := b.index(now)
	a.earned.Add(a.share.earned.sum(index))
	a.share = share{processes: r.processes, floorAt: now, owed: a.share.owed}
	a.share.given.add(index, r.balance/r.processes)
}

// isLost reports whether Redis failed to answer as it should, so lately that it is not asked
// again. One that was silent is asked as soon as it is known to answer.
func (a *account) isLost(b *Budget, key string, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost && now-a.calledAt < b.interval() && !(a.silent && b.client().isReady(b.name(key)))
}

// pending reports whether there is something that Redis does not know and should.
func (a *account) pending(b *Budget, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	return a.earned.Load()+a.refunded.Load()+a.share.earned.sum(index)+a.share.owed.sum(index) > 0
}

// idle reports whether a new account would do as well.
func (a *account) idle(b *Budget, now time.Duration) bool {
	if a.armed.Load() || a.pending(b, now) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return now-a.calledAt > 10*b.tenth()
}

func parseBudgetReply(value any, err error) (budgetReply, error) {
	if err != nil {
		return budgetReply{}, err
	}
	var n [4]int64
	list, _ := value.([]any)
	for i, v := range list[:min(len(list), len(n))] {
		n[i], _ = v.(int64)
	}
	r := budgetReply{granted: n[0] == 1, balance: n[1], begin: n[2], processes: n[3]}
	if len(list) != len(n) || r.balance < 0 || r.processes < 1 {
		return budgetReply{}, fmt.Errorf("redisstore: the budget's script replied %.100q", fmt.Sprint(value))
	}
	return r, nil
}

func (b *Budget) client() *client {
	b.once.Do(func() { b.redis = newClient(b.Client, b.timeout()) })
	return b.redis
}

// name is that of key's budget in Redis: no Key can pass for a host.
func (b *Budget) name(key string) string {
	if b.Key != "" {
		return "heed:budget:" + b.Key
	}
	return "heed:host-budget:" + key
}

// unit is what one request earns.
func (b *Budget) unit() int64 { return units(b.Ratio, 0.1, 100) }

// rate is what the floor gains, in units a millisecond.
func (b *Budget) rate() int64 { return units(b.MinPerSecond/1000, 0.001, 1000) }

// units are those of so many retries, rounded up, with a tolerance that keeps 0.1, which
// has no exact form, at a tenth.
func units(retries, ifZero, most float64) int64 {
	switch {
	case retries == 0:
		retries = ifZero
	case !(retries > 0): // negative or NaN
		return 0
	}
	return int64(math.Ceil(min(retries, most)*retry - 1e-3))
}

// most is what the floor holds: at least one retry, or it would never pay one,
// and so little that the script's sums are exact.
func (b *Budget) most() int64 {
	const limit = 1 << 51
	rate := b.rate()
	if rate == 0 {
		return 0
	}
	return max(retry, rate*min(10*b.tenth().Milliseconds(), limit/rate))
}

// tenth is a tenth of TTL, in whole milliseconds.
func (b *Budget) tenth() time.Duration {
	ttl := min(cmp.Or(max(b.TTL, 0), 10*time.Second), 24*time.Hour)
	return max(time.Millisecond, (ttl / 10).Truncate(time.Millisecond))
}

// index is the number of the tenth that is now.
func (b *Budget) index(now time.Duration) int64 { return int64(now / b.tenth()) }

// interval is how long a deposit waits to be sent, and how long a lost Redis is not asked.
func (b *Budget) interval() time.Duration { return min(time.Second, b.tenth()) }

func (b *Budget) timeout() time.Duration { return cmp.Or(max(b.Timeout, 0), 50*time.Millisecond) }
