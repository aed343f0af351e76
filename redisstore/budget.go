package redisstore

import (
	"context"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Budget is a retry budget that processes share through Redis. It is a
// heed.Budget with the arithmetic of a heed.LocalBudget: every request earns a
// part of a retry, which may be spent for TTL, and a floor allows some retries
// to clients that send few requests. However many processes draw on one Budget,
// there is one ratio and one floor, counted exactly.
//
// Deposit and Refund are counted in the process and travel to Redis with the
// next Withdraw or at most a second later, so Deposit takes neither a lock nor
// a round trip. Withdraw is one round trip. There is nothing to close: the
// timer is armed only while there is something to send.
//
// While Redis is lost, each process spends a share of its own, so that together
// they stay near one budget: the balance it last heard of, divided by the
// number of processes, for TTL; its part of the floor, from nothing; and what
// its own requests earn. What it spent of the first two is charged when Redis
// is back. A process that never reached Redis does not know how many others
// there are, and has no part of the floor. The first Withdraw to find Redis
// lost waits for Timeout; the following ones wait for nothing, while a timer
// asks once a second whether Redis is back. If Key is empty, this is so for each
// host by itself: the first Withdraw for each waits. Deposits that were on their
// way to a Redis that did not answer are forgotten.
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

	// Degraded is told, if not nil, about each call that Redis did not answer as
	// it should, and so for each host if Key is empty: the Budget then works
	// without it. It is called by the goroutine
	// of a retry or of a timer, and must be safe for concurrent use.
	Degraded func(err error)

	calls    caller
	accounts accounts
}

// retry is the price of one retry, in units.
const retry = 1_000_000_000

// Deposit is called once for each request.
func (b *Budget) Deposit(_ context.Context, key string) {
	if unit := b.unit(); unit > 0 {
		b.account(key).deposit(unit)
	}
}

// Withdraw is called once for each retry, and reports whether it may be sent.
// It does so within Timeout, and at once if ctx is over.
func (b *Budget) Withdraw(ctx context.Context, key string) bool {
	if ctx.Err() != nil {
		return false
	}
	// A call that was cut short might have been counted all the same.
	return b.account(key).withdraw(context.WithoutCancel(ctx), now())
}

// Refund gives back a retry that was withdrawn and not sent.
func (b *Budget) Refund(_ context.Context, key string) { b.account(key).refund() }

func (b *Budget) account(key string) *account {
	if b.Key != "" {
		key = b.Key
	}
	return b.accounts.get(b, key)
}

// hash is the name of key's budget in Redis: no Key can pass for a host.
func (b *Budget) hash(key string) string {
	if b.Key != "" {
		return "heed:budget:" + key
	}
	return "heed:host-budget:" + key
}

// unit is what one request earns. The tolerance keeps 0.1, which has no exact
// form, at a tenth.
func (b *Budget) unit() int64 {
	switch {
	case b.Ratio == 0:
		return retry / 10
	case b.Ratio > 0:
		return int64(math.Ceil(min(b.Ratio, 100)*retry - 1e-3))
	}
	return 0
}

// rate is what the floor gains, in units a millisecond.
func (b *Budget) rate() int64 {
	switch {
	case b.MinPerSecond == 0:
		return retry / 1000
	case b.MinPerSecond > 0:
		return int64(math.Ceil(min(b.MinPerSecond, 1e6)*retry/1000 - 1e-3))
	}
	return 0
}

// most is what the floor holds: at least one retry, or it would never pay one,
// and so little that the script's sums are exact.
func (b *Budget) most() int64 {
	const limit = 1 << 51
	rate := b.rate()
	if rate == 0 {
		return 0
	}
	return max(retry, rate*min(10*b.tenth(), limit/rate))
}

// tenth is a tenth of TTL, in milliseconds.
func (b *Budget) tenth() int64 {
	ttl := min(b.TTL, 24*time.Hour)
	if ttl <= 0 {
		ttl = 10 * time.Second
	}
	return max(1, ttl.Milliseconds()/10)
}

func (b *Budget) timeout() time.Duration {
	if b.Timeout <= 0 {
		return 50 * time.Millisecond
	}
	return b.Timeout
}

// interval is how long a deposit waits at home, and how often a lost Redis is
// asked.
func (b *Budget) interval() time.Duration {
	return min(time.Second, time.Duration(b.tenth())*time.Millisecond)
}

// epoch is long before any reading, inside a synctest bubble too.
var epoch = time.Now().Add(-60 * 365 * 24 * time.Hour)

// now is a monotonic clock, in milliseconds.
func now() int64 { return time.Since(epoch).Milliseconds() }
