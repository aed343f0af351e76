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
	// Deposit earns key a part of a retry. It is called once for each request.
	Deposit(ctx context.Context, key string)
	// Withdraw takes a retry from key if one is left, and reports whether it may be sent. It is
	// called before the wait of each retry that is not free. A retry is free if it waits for as long
	// as a refusal's hint or a throttle requires.
	Withdraw(ctx context.Context, key string) bool
	// Refund gives back a retry that was withdrawn but not sent.
	Refund(ctx context.Context, key string)
}

// A SuccessBudget is a Budget that is also told when a server works.
type SuccessBudget interface {
	Budget

	// Success is called once for each request whose response has a status below 500 and is not a
	// refusal because of a limit. Like Deposit, it must not block.
	Success(ctx context.Context, key string)
}

// Unlimited is a Budget that allows every retry. It prolongs outages: a server that comes back
// meets up to MaxAttempts times its usual load.
var Unlimited Budget = unlimited{}

type unlimited struct{}

func (unlimited) Deposit(context.Context, string)       {}
func (unlimited) Withdraw(context.Context, string) bool { return true }
func (unlimited) Refund(context.Context, string)        {}

// A LocalBudget allows retries in proportion to requests, by default one for ten requests. Share
// one between Transports to give them one budget:
//
//	budget := &heed.LocalBudget{Ratio: 0.2, MinPerSecond: 5}
//	a := &heed.Transport{Budget: budget}
//	b := &heed.Transport{Budget: budget}
//
// It is like the retry budget of Finagle, at the ten per cent of "Handling Overload" in Site
// Reliability Engineering (2016). A floor lets clients retry that send few requests. Successes earn
// it, as they earn the tokens of gRPC's retry throttling: with a floor that grows by time alone, a
// thousand small clients would send four times their requests into an outage.
//
// The zero value is ready to use. Do not copy it or change its fields once it is in use. It counts
// each key exactly. Keys that were idle for TTL are dropped; beyond 65,536 keys, others may be too.
type LocalBudget struct {
	// Ratio is how many retries each request earns. If zero, it is 0.1; if negative or NaN, none;
	// at most 10.
	Ratio float64

	// MinPerSecond is the floor, in retries per second: a key that sends few requests may have
	// MinPerSecond·TTL retries at once, at least two, and twice as many within TTL. Each success
	// earns one of them, which expires after TTL. Two do not expire: a new key has them, and when
	// they are spent the next successes earn them again. So a client whose first requests fail can
	// retry, and a server that is down does not get more and more requests. If zero, it is 1; if
	// negative or NaN, there is no floor; at most a million.
	MinPerSecond float64

	// TTL is how long a deposit can be spent, accurate to a tenth. If zero or negative, it is 10
	// seconds; at most an hour.
	TTL time.Duration

	accounts keyed.Table[account]
}

// An account is the balance of one key, in billionths of a retry.
type account struct {
	earned [tenths]slot
	newest atomic.Int64 // the index of the current slot
	until  atomic.Int64 // when that slot's time ends
	full   atomic.Int64 // successes before this time earn nothing

	mu        sync.Mutex   // guards the fields below, the rotation of slots, and spending
	earnings  [tenths]slot // what successes have earned of the floor
	successes [tenths]slot // what is left of that; its first two retries stand for the two below
	spent     int64        // how much is spent of the two retries that do not expire
	spentAt   time.Duration
}

// A slot holds what was earned in one tenth of TTL. It counts while its index is among the last
// ten.
type slot struct{ index, units atomic.Int64 }

const (
	tenths  = 10
	retry   = 1_000_000_000 // the price of one retry, in units
	minimum = 2 * retry     // the part of the floor that does not expire

	// Within TTL a floor can be earned twice: enough for a spike of load, but a server that fails
	// half of its requests must not get twice as many because it answers the other half.
	earnable = 2

	// forgotten is how long after its last withdrawal a key is as good as new.
	forgotten = time.Hour
)

// Deposit earns key Ratio of a retry. A Transport calls it once for each request.
func (b *LocalBudget) Deposit(_ context.Context, key string) {
	b.deposit(hostkey.NameOf(key), now())
}

// Withdraw takes a retry from key if one is left, and reports whether it may be sent. A Transport
// calls it once for each retry that is not free.
func (b *LocalBudget) Withdraw(_ context.Context, key string) bool {
	now := now()
	return b.account(hostkey.NameOf(key), now).withdraw(b, now)
}

// Success earns key one retry of the floor. A Transport calls it once for each request whose
// response has a status below 500 and is not a refusal because of a limit.
func (b *LocalBudget) Success(_ context.Context, key string) {
	b.success(hostkey.NameOf(key), now())
}

// Refund gives back a retry that was withdrawn but not sent.
func (b *LocalBudget) Refund(_ context.Context, key string) {
	now := now()
	b.account(hostkey.NameOf(key), now).refund(b, now)
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

// idle reports whether a holds nothing worth keeping.
func (b *LocalBudget) idle(a *account, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := b.index(now)
	a.forgetLocked(now)
	return a.spent == 0 && unitsOf(&a.earned, index)+unitsOf(&a.successes, index) == 0
}

// forgetLocked makes a as good as new if its last withdrawal is long ago.
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
func (b *LocalBudget) newBalance() int64 {
	if b.minPerSecond() == 0 {
		return 0
	}
	return minimum
}

// floorMax is MinPerSecond·TTL retries, at least two.
func (b *LocalBudget) floorMax() int64 {
	perSecond := b.minPerSecond()
	if perSecond == 0 {
		return 0
	}
	return max(minimum, int64(min(perSecond*float64(b.ttl()), 1<<62)))
}

// add is called for every request: three atomic operations, and a lock once for each tenth of TTL.
func (a *account) add(b *LocalBudget, now time.Duration, units int64) {
	if int64(now) >= a.until.Load() {
		a.rotate(b, now)
	}
	a.earned[a.newest.Load()%tenths].units.Add(units)
}

// rotate empties the slot of the tenth that begins.
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

// succeed earns one retry of the floor. It goes first to what was spent of the two that do not
// expire. That part also fills the floor, but no higher than those two.
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

// addUnits adds units to the current slot.
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

// spend takes price from the slots, those that expire first, and returns what they could not pay.
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

// refund fills the floor first. The rest was earned by requests, and can be spent for another TTL.
func (a *account) refund(b *LocalBudget, now time.Duration) {
	if rest := a.refundFloor(b, b.index(now)); rest > 0 {
		a.add(b, now, rest)
	}
}

// refundFloor refunds as much of a retry as the floor has room for, and returns the rest.
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

// surplusLocked is what successes have earned beyond two retries, which newBalance already counts.
func (a *account) surplusLocked(index int64) int64 {
	return max(0, unitsOf(&a.successes, index)-minimum)
}

// unitsOf adds up the slots that still count.
func unitsOf(slots *[tenths]slot, index int64) (units int64) {
	for i := max(0, index-tenths+1); i <= index; i++ {
		if s := &slots[i%tenths]; s.index.Load() == i {
			units += s.units.Load()
		}
	}
	return units
}
