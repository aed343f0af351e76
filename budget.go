package heed

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
)

// A Budget limits retries, so that they do not add to an outage. The zero Transport uses a
// LocalBudget; redisstore.Budget is one that processes share. The key is always the request's
// scheme://host. Implementations must be safe for concurrent use, and must not block for long:
// Deposit is called for every request.
type Budget interface {
	// Deposit earns key a part of a retry. It is called once for each request, right before its first
	// attempt. A request that is never sent earns nothing.
	Deposit(ctx context.Context, key string)
	// Withdraw takes a retry from key if one is left, and reports whether it may be sent. It is
	// called before the wait of each retry that is not free. A retry is free if the last attempt
	// could not be sent, if it waits until a host that is down is back, or for as long as a refusal's
	// hint or a throttle requires. After a hint it is not free if its request was sent after the end
	// of the last hint, nothing was answered well since, and no other request waits in line.
	Withdraw(ctx context.Context, key string) bool
	// Refund gives back a retry that was withdrawn: because it was not sent, or because its call ended
	// well. It is called at most once for each retry that Withdraw allowed, and right before Success
	// for each retry of a call that ended well. So it must not block, like Deposit.
	Refund(ctx context.Context, key string)
}

// A SuccessBudget is a Budget that is also told when a server works.
type SuccessBudget interface {
	Budget

	// Success is called once for each request that ended well: its response has a status below 500
	// and is not a refusal because of a limit. Like Deposit, it must not block.
	Success(ctx context.Context, key string)
}

// Unlimited is a Budget that allows every retry. It prolongs outages: a server that comes back
// meets up to MaxAttempts times its usual load.
var Unlimited Budget = unlimited{}

type unlimited struct{}

func (unlimited) Deposit(context.Context, string)       {}
func (unlimited) Withdraw(context.Context, string) bool { return true }
func (unlimited) Refund(context.Context, string)        {}

// A LocalBudget allows retries in proportion to requests, by default one for ten requests. Retries
// of a call that ends well are given back: they cost nothing in the end. Share one between
// Transports to give them one budget:
//
//	budget := &heed.LocalBudget{Ratio: 0.2, MinPerSecond: 5}
//	a := &heed.Transport{Budget: budget}
//	b := &heed.Transport{Budget: budget}
//
// It is like the retry budget of Finagle, at the ten per cent of "Handling Overload" in Site
// Reliability Engineering (2016), and gives back as the standard retry mode of AWS' SDKs does. A
// floor lets clients retry that send few requests. Successes earn it, as they earn the tokens of
// gRPC's retry throttling: with a floor that grows by time alone, a thousand small clients would
// send four times their requests into an outage.
//
// The zero value is ready to use. Do not copy it or change its fields once it is in use. It counts
// each key exactly. Keys that were idle for TTL are dropped; beyond 65,536 keys, others may be too.
type LocalBudget struct {
	// Ratio is how many retries each request earns. If zero, it is 0.1; if negative or NaN, none;
	// at most 10.
	Ratio float64

	// MinPerSecond is the floor, in retries per second. While a key has less than MinPerSecond·TTL
	// retries, at least three, each success earns it one; within TTL, at most twice that floor. These
	// retries expire after TTL, but for three: a new key has three, and when they are spent, the next
	// successes earn them again. So a client whose first requests fail can retry, and a server that
	// is down does not get more and more requests. If zero, it is 1; if negative or NaN, there is no
	// floor, and a new key has no retries; at most a million.
	MinPerSecond float64

	// TTL is how long a deposit can be spent, accurate to a tenth. If zero or negative, it is 10
	// seconds; at most an hour.
	TTL time.Duration

	accounts keyed.Table[account]
}

// An account is the balance of one key, in billionths of a retry.
type account struct {
	slots  [tenths]slot // those of the last TTL
	newest atomic.Int64 // the number of the current tenth of TTL; its slot is newest%tenths
	until  atomic.Int64 // when that tenth ends
	full   atomic.Int64 // successes before this time earn nothing

	mu      sync.Mutex    // guards the fields below, newest, until, and all of slots but deposits
	spent   int64         // of the three retries that do not expire
	spentAt time.Duration // the last withdrawal
}

// A slot is what was earned in one tenth of TTL, and how much of that is spent.
type slot struct {
	deposits  atomic.Int64
	successes int64
	spent     int64
}

func (s *slot) earned() int64 { return s.deposits.Load() + s.successes }
func (s *slot) left() int64   { return s.earned() - s.spent }

const (
	tenths  = 10
	retry   = 1_000_000_000 // the price of one retry, in units
	lasting = 3 * retry     // the part of the floor that does not expire

	// Within TTL a floor can be earned twice: enough for a spike of load, but a server that fails
	// most of its requests must not get many times as many because it answers the others.
	earnable = 2

	// forgotten is how long after its last withdrawal a key is as good as new.
	forgotten = time.Hour
)

// Deposit earns key Ratio of a retry. A Transport calls it once for each request that it sends.
func (b *LocalBudget) Deposit(_ context.Context, key string) {
	b.deposit(hostkey.NameOf(key), now())
}

// Withdraw takes a retry from key if one is left, and reports whether it may be sent. A Transport
// calls it once for each retry that is not free.
func (b *LocalBudget) Withdraw(_ context.Context, key string) bool {
	now := now()
	a := b.account(hostkey.NameOf(key), now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(b, now)
	return a.withdrawLocked(b, now)
}

// Success earns key one retry of the floor, if it is not full. A Transport calls it once for each
// request whose response has a status below 500 and is not a refusal because of a limit.
func (b *LocalBudget) Success(_ context.Context, key string) {
	b.success(hostkey.NameOf(key), now())
}

// Refund gives back a retry that was withdrawn: because it was not sent, or because its call ended
// well. Then the balance is as if it had not been withdrawn, so what expired meanwhile does not come
// back, and a Refund without a Withdraw gives nothing.
func (b *LocalBudget) Refund(_ context.Context, key string) {
	now := now()
	a := b.account(hostkey.NameOf(key), now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(b, now)
	a.refundLocked()
}

// Balance returns how many retries are left for key, for metrics and tests. Below 1,
// Withdraw allows none. It changes nothing, and keeps no balance for a new key.
func (b *LocalBudget) Balance(key string) float64 {
	now := now()
	a := b.accounts.Find(hostkey.NameOf(key))
	if a == nil {
		return float64(b.newBalance()) / retry
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(b, now)
	return float64(a.balanceLocked(b)) / retry
}

func (b *LocalBudget) deposit(key hostkey.Name, now time.Duration) {
	if unit := b.unit(); unit > 0 {
		b.account(key, now).deposit(b, now, unit)
	}
}

// success takes no lock while the floor is full.
func (b *LocalBudget) success(key hostkey.Name, now time.Duration) {
	a := b.account(key, now)
	if int64(now) < a.full.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(b, now)
	a.succeedLocked(b)
}

func (b *LocalBudget) account(key hostkey.Name, now time.Duration) *account {
	return b.accounts.Get(key, func(a *account) keyed.State { return keyed.IdleIf(b.idle(a, now)) })
}

// idle reports whether a new account would be the same as a.
func (b *LocalBudget) idle(a *account, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(b, now)
	earned := int64(0)
	for i := range a.slots {
		earned += a.slots[i].earned()
	}
	return a.spent == 0 && earned == 0
}

func (b *LocalBudget) ttl() time.Duration {
	if b.TTL <= 0 {
		return 10 * time.Second
	}
	return min(max(b.TTL, tenths), time.Hour)
}

// unit is what one request earns. It is rounded up, so that three requests at a third earn one
// retry. The subtraction keeps 0.1, which has no exact form, at a tenth.
func (b *LocalBudget) unit() int64 {
	switch {
	case b.Ratio == 0:
		return retry / 10
	case b.Ratio > 0:
		return int64(math.Ceil(min(b.Ratio, 10)*retry - 1e-3))
	}
	return 0
}

func (b *LocalBudget) minPerSecond() float64 {
	switch {
	case b.MinPerSecond == 0:
		return 1
	case b.MinPerSecond > 0:
		return min(b.MinPerSecond, 1e6)
	}
	return 0
}

// newBalance is the balance of a key that has earned nothing.
func (b *LocalBudget) newBalance() int64 { return min(lasting, b.floor()) }

// floor is MinPerSecond·TTL retries, at least three.
func (b *LocalBudget) floor() int64 {
	perSecond := b.minPerSecond()
	if perSecond == 0 {
		return 0
	}
	return max(lasting, int64(perSecond*float64(b.ttl())))
}

// advanceLocked drops what has expired until now.
func (a *account) advanceLocked(b *LocalBudget, now time.Duration) {
	if now-a.spentAt >= forgotten {
		a.spent = 0
	}
	tenth := b.ttl() / tenths
	index, newest := int64(now/tenth), a.newest.Load()
	if index <= newest {
		return
	}
	for i := max(newest, index-tenths) + 1; i <= index; i++ {
		s := &a.slots[i%tenths]
		s.deposits.Store(0)
		s.successes, s.spent = 0, 0
	}
	a.newest.Store(index)
	a.until.Store((index + 1) * int64(tenth))
}

// deposit is called for every request: three atomic operations, and a lock once for each tenth of
// TTL.
func (a *account) deposit(b *LocalBudget, now time.Duration, units int64) {
	if int64(now) >= a.until.Load() {
		a.mu.Lock()
		a.advanceLocked(b, now)
		a.mu.Unlock()
	}
	a.slots[a.newest.Load()%tenths].deposits.Add(units)
}

// succeedLocked earns one retry of the floor, or what is missing of it.
func (a *account) succeedLocked(b *LocalBudget) {
	most := b.floor()
	missing, earned := max(most-a.balanceLocked(b), a.spent), int64(0)
	for i := range a.slots {
		earned += a.slots[i].successes
	}
	units := min(retry, missing, earnable*most-earned)
	if units <= 0 {
		a.full.Store(a.until.Load())
		return
	}
	s := &a.slots[a.newest.Load()%tenths]
	s.successes += units
	// It first pays for what was spent of the three that do not expire.
	part := min(units, a.spent)
	a.spent -= part
	s.spent += part
}

// withdrawLocked spends what expires first, and then what does not expire.
func (a *account) withdrawLocked(b *LocalBudget, now time.Duration) bool {
	if a.balanceLocked(b) < retry {
		return false
	}
	rest := int64(retry)
	for i := a.newest.Load() - tenths + 1; i <= a.newest.Load(); i++ {
		s := &a.slots[i%tenths]
		part := min(rest, s.left())
		s.spent += part
		rest -= part
	}
	a.spent += rest
	a.spentAt = now
	a.full.Store(0)
	return true
}

// refundLocked undoes what withdrawLocked did, the last first. It takes back only what is spent: if it
// deposited instead, retries that are given back again and again would never expire, and an hour in
// which a part of the requests fails would save up thousands for the next outage.
func (a *account) refundLocked() {
	part := min(retry, a.spent)
	a.spent -= part
	rest := retry - part
	for i := a.newest.Load(); i > a.newest.Load()-tenths; i-- {
		s := &a.slots[i%tenths]
		part := min(rest, s.spent)
		s.spent -= part
		rest -= part
	}
}

func (a *account) balanceLocked(b *LocalBudget) int64 {
	units := b.newBalance() - a.spent
	for i := range a.slots {
		units += a.slots[i].left()
	}
	return units
}
