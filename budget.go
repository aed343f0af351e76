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

// A Budget decides whether a retry may be spent. Its key is always the
// request's scheme://host. Implementations must be safe for concurrent use and
// must not block for long: Deposit is on the path of every request.
type Budget interface {
	// Deposit is called once for each request.
	Deposit(ctx context.Context, key string)
	// Withdraw is called once for each retry that nobody asked for, before its
	// wait. It reports whether the retry may be sent.
	Withdraw(ctx context.Context, key string) bool
	// Refund gives back a retry that was withdrawn and not sent.
	Refund(ctx context.Context, key string)
}

// A SuccessBudget is a Budget that is told, too, when a server has answered well.
type SuccessBudget interface {
	Budget

	// Success is called once for each request that was answered with a status below
	// 500 which does not refuse it because of a limit. Like Deposit, it must not block.
	Success(ctx context.Context, key string)
}

// Unlimited is a Budget that refuses nothing. It makes every outage of a
// server longer: MaxAttempts times its usual load is what it meets on coming
// back.
var Unlimited Budget = unlimited{}

type unlimited struct{}

func (unlimited) Deposit(context.Context, string)       {}
func (unlimited) Withdraw(context.Context, string) bool { return true }
func (unlimited) Refund(context.Context, string)        {}

// A LocalBudget allows retries in proportion to requests, with a floor for
// clients that send few: the retry budget of Finagle, at the ten per cent of
// "Handling Overload" in Site Reliability Engineering (2016). But here the floor is
// earned by successes, as the tokens of gRPC's throttling are: a floor that time
// fills lets a thousand small clients send an outage four times their requests.
//
// It keeps a balance for each key and forgets those that were idle for TTL; at
// 65,536 keys it forgets others as well. The zero value is ready to use. One
// LocalBudget may be shared by pointer, by Transports and whole worker pools,
// which then spend one budget, counted exactly. Its fields must not change
// once it is in use, and it must not be copied.
type LocalBudget struct {
	// Ratio is how many retries each request earns. If zero, 0.1; if negative
	// or NaN, none; above 10, 10.
	Ratio float64

	// MinPerSecond·TTL is how many retries a key may have at once however few requests
	// there are, or two if that is less, and twice as many are all that it may have within
	// TTL. Each success within TTL earns one; but
	// two do not expire: a new key has them, and once they are spent, the next successes
	// give them back. So a client whose first requests fail may retry, and a server that
	// is down is not sent more and more. If zero, 1; if negative or NaN, there is no floor;
	// above a million, a million.
	MinPerSecond float64

	// TTL is how long a deposit may be spent, to a tenth of its length. If
	// zero or negative, 10 s; above an hour, an hour.
	TTL time.Duration

	accounts keyed.Table[account]
}

// An account is the balance of one key, in units of a billionth of a retry.
type account struct {
	earned [tenths]slot
	newest atomic.Int64 // the index of the slot that is filled
	until  atomic.Int64 // the end of its tenth
	full   atomic.Int64 // until when a success earns nothing

	mu        sync.Mutex   // guards what follows, the rotation of slots, and what they lose
	earnings  [tenths]slot // what successes have earned of the floor
	successes [tenths]slot // of that, what was not spent
	spent     int64        // of the two retries that do not expire
	spentAt   time.Duration
}

// A slot holds what was earned in one tenth of TTL. It is in force if its index
// is among the last ten.
type slot struct{ index, units atomic.Int64 }

const (
	tenths  = 10
	retry   = 1_000_000_000 // the price of one retry, in units
	minimum = 2 * retry     // what does not expire of a floor

	// Within TTL a floor is earned twice at most: a server that fails half of its requests
	// answers the other half, and is not to be sent twice as many for that. Earned once, it
	// is a little too small for a spike of load.
	earnable = 2

	// forgotten is when the key of a server that no longer answers is as good as new.
	forgotten = time.Hour
)

// Deposit is called once for each request.
func (b *LocalBudget) Deposit(_ context.Context, key string) {
	b.deposit(hostkey.NameOf(key), now())
}

// Withdraw is called once for each retry, and reports whether it may be sent.
func (b *LocalBudget) Withdraw(_ context.Context, key string) bool {
	now := now()
	return b.account(hostkey.NameOf(key), now).withdraw(b, now)
}

// Success is called once for each request that was answered well.
func (b *LocalBudget) Success(_ context.Context, key string) {
	b.success(hostkey.NameOf(key), now())
}

// Refund gives back a retry that was withdrawn and not sent.
func (b *LocalBudget) Refund(_ context.Context, key string) {
	now := now()
	b.account(hostkey.NameOf(key), now).refund(b, now)
}

// Balance returns how many retries are left for key, for metrics and tests: below 1,
// Withdraw allows none. It changes nothing, and keeps no balance for a new key.
func (b *LocalBudget) Balance(key string) float64 {
	now := now()
	a := b.accounts.Find(hostkey.NameOf(key))
	if a == nil {
		return float64(b.newBalance()) / retry
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetLocked(now)
	return float64(a.balanceLocked(b, b.index(now))) / retry
}

func (b *LocalBudget) deposit(key hostkey.Name, now time.Duration) {
	if unit := b.unit(); unit > 0 {
		b.account(key, now).add(b, now, unit)
	}
}

// success takes no lock while the floor is full.
func (b *LocalBudget) success(key hostkey.Name, now time.Duration) {
	if a := b.account(key, now); int64(now) >= a.full.Load() {
		a.succeed(b, now)
	}
}

func (b *LocalBudget) account(key hostkey.Name, now time.Duration) *account {
	return b.accounts.Get(key, func(a *account) keyed.State { return keyed.IdleIf(b.idle(a, now)) })
}

// idle reports that nothing of a is worth keeping.
func (b *LocalBudget) idle(a *account, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	a.forgetLocked(now)
	return a.spent == 0 && unitsOf(&a.earned, index)+unitsOf(&a.successes, index) == 0
}

// forgetLocked makes a as new if nothing was spent for long.
func (a *account) forgetLocked(now time.Duration) {
	if now-a.spentAt >= forgotten {
		a.spent = 0
	}
}

func (b *LocalBudget) ttl() time.Duration {
	if b.TTL <= 0 {
		return 10 * time.Second
	}
	return min(max(b.TTL, tenths), time.Hour)
}

func (b *LocalBudget) index(now time.Duration) int64 { return int64(now / (b.ttl() / tenths)) }

// unit is what one request earns, rounded up so that three requests at a third
// earn one retry; the tolerance keeps 0.1, which has no exact form, at a tenth.
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

// newBalance is what a key has that has earned nothing.
func (b *LocalBudget) newBalance() int64 {
	if b.minPerSecond() == 0 {
		return 0
	}
	return minimum
}

// floorMax is MinPerSecond·TTL retries, or two if that is less.
func (b *LocalBudget) floorMax() int64 {
	perSecond := b.minPerSecond()
	if perSecond == 0 {
		return 0
	}
	return max(minimum, int64(min(perSecond*float64(b.ttl()), 1<<62)))
}

// add is the path of every request: three atomic operations, and a lock once for
// each tenth of TTL.
func (a *account) add(b *LocalBudget, now time.Duration, units int64) {
	if int64(now) >= a.until.Load() {
		a.rotate(b, now)
	}
	a.earned[a.newest.Load()%tenths].units.Add(units)
}

// rotate empties the slot whose tenth has begun.
func (a *account) rotate(b *LocalBudget, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	if a.newest.Load() >= index {
		return
	}
	s := &a.earned[index%tenths]
	s.units.Store(0)
	s.index.Store(index)
	a.newest.Store(index)
	a.until.Store((index + 1) * int64(b.ttl()/tenths))
}

// succeed earns a retry of the floor: one of the two that last, if they were spent.
func (a *account) succeed(b *LocalBudget, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	most, have := b.floorMax(), unitsOf(&a.successes, index)
	units := min(retry, max(most-have, a.spent), earnable*most-unitsOf(&a.earnings, index))
	if units <= 0 {
		a.full.Store((index + 1) * int64(b.ttl()/tenths))
		return
	}
	addUnits(&a.earnings, index, units)
	part := min(units, a.spent)
	a.spent -= part
	lasting := min(part, max(0, minimum-have))
	addUnits(&a.successes, index, units-part+lasting)
}

// addUnits earns units in the tenth that is now.
func addUnits(slots *[tenths]slot, index, units int64) {
	s := &slots[index%tenths]
	if s.index.Load() < index {
		s.index.Store(index)
		s.units.Store(0)
	}
	s.units.Add(units)
}

func (a *account) withdraw(b *LocalBudget, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	a.forgetLocked(now)
	if a.balanceLocked(b, index) < retry {
		return false
	}
	a.spentAt = now
	rest := spend(&a.earned, index, retry)
	fromFloor := min(rest, a.surplusLocked(index))
	spend(&a.successes, index, fromFloor)
	a.spent += rest - fromFloor
	a.full.Store(0)
	return true
}

// spend takes price from the slots that expire first, and returns what they could not
// pay.
func spend(slots *[tenths]slot, index, price int64) (rest int64) {
	for i := max(0, index-tenths+1); i <= index && price > 0; i++ {
		s := &slots[i%tenths]
		if s.index.Load() != i {
			continue
		}
		part := min(price, s.units.Load())
		s.units.Add(-part)
		price -= part
	}
	return price
}

// refund fills the floor first. What does not fit into it was earned by requests, and may
// be spent for another TTL.
func (a *account) refund(b *LocalBudget, now time.Duration) {
	if rest := a.refundFloor(b, b.index(now)); rest > 0 {
		a.add(b, now, rest)
	}
}

func (a *account) refundFloor(b *LocalBudget, index int64) (rest int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	part := min(retry, a.spent)
	a.spent -= part
	have := max(unitsOf(&a.successes, index), minimum)
	more := max(0, min(retry-part, b.floorMax()-have))
	if more > 0 {
		addUnits(&a.successes, index, have+more-unitsOf(&a.successes, index))
	}
	return retry - part - more
}

func (a *account) balanceLocked(b *LocalBudget, index int64) int64 {
	return unitsOf(&a.earned, index) + a.surplusLocked(index) + b.newBalance() - a.spent
}

// surplusLocked is what successes have earned beyond the two retries that do not expire,
// which the first two successes of each TTL stand for.
func (a *account) surplusLocked(index int64) int64 {
	return max(0, unitsOf(&a.successes, index)-minimum)
}

// unitsOf adds up the slots in force.
func unitsOf(slots *[tenths]slot, index int64) (units int64) {
	for i := max(0, index-tenths+1); i <= index; i++ {
		if s := &slots[i%tenths]; s.index.Load() == i {
			units += s.units.Load()
		}
	}
	return units
}
