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

// A Budget limits the retries of all processes that share it. It is a heed.Budget:
//
//	client := &http.Client{Transport: &heed.Transport{
//		Budget: &redisstore.Budget{Client: rdb, Key: "orders-api"},
//	}}
//
// As with a heed.LocalBudget, each request earns a part of a retry, which may be spent within TTL,
// and clients that send few requests have a floor of retries per second. But there is only one
// ratio and one floor for all processes, counted exactly, and the floor refills with time.
//
// A retry that is given back because its call ended well costs nothing in the end.
//
// Withdraw is one round trip. Deposit and Refund only count in memory: their counts are sent with
// the next Withdraw, or a second later at most, in one call however many there are. There is nothing
// to close: a timer runs only while there is something to send.
//
// # When Redis does not answer
//
// The first Withdraw waits for Timeout; later ones do not wait until Redis is back. Meanwhile each
// process spends a share of its own, so that all together stay near one budget:
//
//   - the balance that Redis last reported, divided by the number of processes, for TTL;
//   - its part of the floor, which starts empty;
//   - what its own requests earn.
//
// What it spends of the first two is charged if Redis is back within TTL. A process that has never
// reached Redis does not know how many others there are: its floor is one retry for each TTL.
//
// Nothing is sent twice. So deposits are lost if Redis did not answer them, and a retry that Redis
// may have charged is not charged again. While Redis does not answer, a Refund gives back only what
// the process spent of its share.
//
// Set Client: without it, Redis counts as down. Fields must not change once the Budget is in use,
// and it must not be copied. It is safe for concurrent use.
type Budget struct {
	// Client connects to Redis. If nil, Redis counts as down.
	Client redis.UniversalClient

	// Key names one budget for the requests to all hosts. If empty, each host has its own.
	Key string

	// Ratio is how many retries each request earns, rounded up to a billionth.
	// If zero, 0.1; if negative or NaN, none; above 100, 100.
	Ratio float64

	// MinPerSecond is the floor: how many retries a second are allowed however few requests
	// there are, rounded up to a millionth. At most MinPerSecond·TTL of them may be spent at
	// once, but at least three and never more than two million. A new key has all of them. If
	// zero, 1; if negative or NaN, none.
	MinPerSecond float64

	// TTL is how long a deposit may be spent, in steps of a tenth of TTL. If zero or negative,
	// 10 s; below 10 ms, 10 ms; above a day, a day.
	TTL time.Duration

	// Timeout is how long a Withdraw may take. If zero or negative, 50 ms.
	Timeout time.Duration

	// Degraded, if not nil, is called with the error of each failed call to Redis, after which
	// the Budget works without it. If Key is empty, this happens for each host. It is called
	// from the goroutines of retries and timers, so it must be safe for concurrent use.
	Degraded func(err error)

	once     sync.Once // guards the creation of redis
	redis    *client
	accounts keyed.Table[account]
}

// retry is the price of one retry. All amounts are in these units.
const retry = 1_000_000_000

//go:embed lua/budget.lua
var budgetSource string

var budgetScript = newScript(budgetSource)

// Deposit adds what one request earns. A Transport calls it once for each request that it sends.
func (b *Budget) Deposit(_ context.Context, key string) {
	unit := b.unit()
	if unit == 0 {
		return
	}
	if a := b.account(key); a.earned.Add(unit) == unit {
		b.flushLater(a, key)
	}
}

// Withdraw takes one retry out of the budget, and reports whether it may be sent. It returns within
// Timeout, and false at once if ctx has ended.
func (b *Budget) Withdraw(ctx context.Context, key string) bool {
	if ctx.Err() != nil {
		return false
	}
	a, charged := b.account(key), false
	if !a.isLost(b, key, monotonic()) {
		// A canceled call could still have been charged: so it runs to its end.
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
	a.keepLocked(b, now)
	return a.share.withdraw(b, now, charged)
}

// Refund gives back a retry that was withdrawn: because it was not sent, or because its call ended
// well. Then the balance is as if it had not been withdrawn, so what expired meanwhile does not come
// back. Refund only counts in memory, as Deposit does.
func (b *Budget) Refund(_ context.Context, key string) {
	a := b.account(key)
	a.refunded.Add(retry)
	b.flushLater(a, key)
}

// Balance returns how many retries could be paid for key now, as far as this process knows, for metrics and
// tests. Below 1, Withdraw will hardly allow one. It makes no round trip, and keeps no account for a new
// key, which has the whole floor.
//
// While Redis answers, that is the balance of all processes that it last reported to this one, at most a
// second ago while there are requests, with what the floor has gained and what this process has counted
// since. While Redis does not answer, it is the share of this process.
func (b *Budget) Balance(key string) float64 {
	units := b.most()
	if a := b.accounts.Find(b.accountName(key)); a != nil {
		units = a.balance(b, monotonic())
	}
	return float64(units) / retry
}

// An account is what this process knows of one budget. What its requests earn is sent to Redis or,
// while Redis does not answer, added to the share.
type account struct {
	earned   atomic.Int64 // units to send
	refunded atomic.Int64 // units of withdrawn retries that are given back, to send
	armed    atomic.Bool  // a timer is set, or its flush is running

	mu       sync.Mutex    // guards what follows
	lost     bool          // the last call failed
	silent   bool          // it failed because there was no answer
	calledAt time.Duration // when it ended
	counted  int64         // the tenth of a TTL, by Redis' clock, in which Redis last counted this process
	reported int64         // that Redis reported then
	share    share         // what may be spent while Redis does not answer
}

// account returns the account of key. After eviction, an account still sends its pending units.
func (b *Budget) account(key string) *account {
	return b.accounts.Get(b.accountName(key), func(a *account) keyed.State {
		return keyed.IdleIf(a.idle(b, monotonic()))
	})
}

func (b *Budget) accountName(key string) hostkey.Name { return hostkey.NameOf(cmp.Or(b.Key, key)) }

// flushLater sets a timer that sends what a has pending, unless a Withdraw sends it first.
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
	if a.pending(b, monotonic()) { // new units, or a call that failed
		b.flushLater(a, key)
	}
}

// call sends what a has pending, and has Redis charge price.
func (b *Budget) call(ctx context.Context, a *account, key string, price int64) (granted bool, err error) {
	r := a.request(b, monotonic())
	value, err := b.client().run(ctx, budgetScript, []string{b.name(key)},
		r.earned, r.refunded, r.owed, price, b.rate(), b.most(), b.tenth().Milliseconds(), r.counted)
	reply, err := parseBudgetReply(value, err)
	if err != nil {
		a.fail(b, r, err, monotonic())
		if b.Degraded != nil {
			b.Degraded(fmt.Errorf("redisstore.Budget: %w", err))
		}
		return false, err
	}
	a.learn(b, reply, monotonic())
	if a.pending(b, monotonic()) {
		b.flushLater(a, key)
	}
	return reply.granted, nil
}

// A budgetRequest is what an account sends to the script, and a budgetReply what the script
// returns.
type (
	budgetRequest struct{ earned, refunded, owed, counted int64 }
	budgetReply   struct {
		granted   bool
		balance   int64
		start     int64 // of the current tenth of a TTL, by Redis' clock
		processes int64
	}
)

// request takes what a has pending. While Redis does not answer, it takes nothing: it would be
// lost.
func (a *account) request(b *Budget, now time.Duration) budgetRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := budgetRequest{counted: a.counted}
	if a.lost {
		a.keepLocked(b, now)
		return r
	}
	r.earned, r.refunded = a.earned.Swap(0), a.refunded.Swap(0)
	r.owed, a.share.owed = a.share.owed.sum(b.index(now)), tenths{}
	return r
}

// keepLocked moves to the share what cannot be sent now.
func (a *account) keepLocked(b *Budget, now time.Duration) {
	index := b.index(now)
	a.share.earned.add(index, a.earned.Swap(0))
	a.share.refund(b, index, a.refunded.Swap(0))
}

// fail takes back what r contains, if Redis cannot have counted it.
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
	a.lost, a.calledAt, a.counted, a.reported = false, now, r.start, r.balance
	index := b.index(now)
	a.earned.Add(a.share.earned.sum(index))
	a.share = share{processes: r.processes, floorAt: now, owed: a.share.owed}
	a.share.given.add(index, r.balance/r.processes)
}

// balance returns what could be spent now.
func (a *account) balance(b *Budget, now time.Duration) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost {
		a.keepLocked(b, now)
		return a.share.balance(b, now)
	}
	known, most, rate, since := a.reported, b.most(), b.rate(), now-a.calledAt
	switch {
	case a.share.processes == 0: // Redis has not answered yet
		known = most
	case since >= 10*b.tenth(): // what was earned has expired
		known = min(known, most)
	}
	if rate > 0 && known < most {
		known = min(most, known+rate*min(since.Milliseconds(), most/rate+1))
	}
	return max(0, known+a.earned.Load()+a.refunded.Load()-a.share.owed.sum(b.index(now)))
}

// isLost reports whether a call to Redis failed so recently that Redis is not asked again yet. If
// it failed for want of an answer, Redis is asked again as soon as a probe is answered.
func (a *account) isLost(b *Budget, key string, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost && now-a.calledAt < b.interval() && !(a.silent && b.client().isReady(b.name(key)))
}

// pending reports whether there is something to send to Redis.
func (a *account) pending(b *Budget, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	return a.earned.Load()+a.refunded.Load()+a.share.earned.sum(index)+a.share.owed.sum(index) > 0
}

// idle reports whether a can be replaced by a new account without a difference.
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
	var list replyReader
	list.rest, _ = value.([]any)
	r := budgetReply{
		granted: list.natural() == 1, balance: list.natural(), start: list.natural(), processes: list.natural(),
	}
	if list.failed || len(list.rest) > 0 || r.processes < 1 {
		return budgetReply{}, fmt.Errorf("redisstore: unexpected reply of the budget script: %.100q", fmt.Sprint(value))
	}
	return r, nil
}

func (b *Budget) client() *client {
	b.once.Do(func() { b.redis = newClient(b.Client, b.timeout()) })
	return b.redis
}

// name returns the name of key's budget in Redis. A Key cannot collide with a host.
func (b *Budget) name(key string) string {
	if b.Key != "" {
		return "heed:budget:" + b.Key
	}
	return "heed:host-budget:" + key
}

// unit returns what one request earns.
func (b *Budget) unit() int64 { return units(b.Ratio, 0.1, 100) }

// rate returns what the floor gains, in units a millisecond.
func (b *Budget) rate() int64 { return units(b.MinPerSecond/1000, 0.001, 1000) }

// units converts a number of retries to units, rounded up. The tolerance keeps 0.1, which has no exact
// floating-point form, at exactly a tenth.
func units(retries, ifZero, most float64) int64 {
	switch {
	case retries == 0:
		retries = ifZero
	case !(retries > 0): // negative or NaN
		return 0
	}
	return int64(math.Ceil(min(retries, most)*retry - 1e-3))
}

// most returns what the floor holds at most. It is at least three retries, as many as a request has
// by default, and so little that the script's sums are exact.
func (b *Budget) most() int64 {
	const limit = 1 << 51
	rate := b.rate()
	if rate == 0 {
		return 0
	}
	return max(3*retry, rate*min(10*b.tenth().Milliseconds(), limit/rate))
}

// tenth returns a tenth of TTL, in whole milliseconds.
func (b *Budget) tenth() time.Duration {
	ttl := min(cmp.Or(max(b.TTL, 0), 10*time.Second), 24*time.Hour)
	return max(time.Millisecond, (ttl / 10).Truncate(time.Millisecond))
}

// index returns the number of the tenth of a TTL that contains now.
func (b *Budget) index(now time.Duration) int64 { return int64(now / b.tenth()) }

// interval returns how long a deposit waits to be sent, and a failed Redis to be asked again.
func (b *Budget) interval() time.Duration { return min(time.Second, b.tenth()) }

func (b *Budget) timeout() time.Duration { return cmp.Or(max(b.Timeout, 0), 50*time.Millisecond) }
