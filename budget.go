package heed

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
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
// "Handling Overload" in Site Reliability Engineering (2016).
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

	// MinPerSecond is how many retries a second are allowed however few
	// requests there are; at most MinPerSecond·TTL of them, or one if that is
	// less, at once. If zero, 1; if negative or NaN, none; above a million, a
	// million.
	MinPerSecond float64

	// TTL is how long a deposit may be spent, to a tenth of its length. If
	// zero or negative, 10 s; above an hour, an hour.
	TTL time.Duration

	purses rows[purse]
}

// A purse is the balance of one key, in units of a billionth of a retry.
type purse struct {
	earned [tenths]slot
	newest atomic.Int64 // the index of the slot that is filled
	until  atomic.Int64 // the end of its tenth

	mu      sync.Mutex // guards what follows, the turn of a slot, and what earned loses
	floor   int64
	part    float64       // of a unit, that the floor has beside
	floorAt time.Duration // when floor was right; 0 for a purse nobody drew from, whose floor is full
}

// A slot holds what was earned in one tenth of TTL. It is in force if its index
// is among the last ten.
type slot struct{ index, units atomic.Int64 }

const (
	tenths = 10
	retry  = 1_000_000_000 // the price of one retry, in units
)

// Deposit is called once for each request.
func (b *LocalBudget) Deposit(_ context.Context, key string) {
	b.deposit(hostkey.NameOf(key), now())
}

// Withdraw is called once for each retry, and reports whether it may be sent.
func (b *LocalBudget) Withdraw(_ context.Context, key string) bool {
	now := now()
	return b.purse(hostkey.NameOf(key), now).withdraw(b, now)
}

// Refund gives back a retry that was withdrawn and not sent.
func (b *LocalBudget) Refund(_ context.Context, key string) {
	now := now()
	b.purse(hostkey.NameOf(key), now).refund(b, now)
}

// Balance reports how many retries could be withdrawn for key now.
func (b *LocalBudget) Balance(key string) float64 {
	now := now()
	p := b.purses.find(key)
	if p == nil {
		return float64(b.floorMax()) / retry
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.earnedLocked(b.index(now))+p.floorLocked(b, now)) / retry
}

func (b *LocalBudget) deposit(key hostkey.Name, now time.Duration) {
	if unit := b.unit(); unit > 0 {
		b.purse(key, now).add(b, now, unit)
	}
}

func (b *LocalBudget) purse(key hostkey.Name, now time.Duration) *purse {
	if p := b.purses.recall(key); p != nil {
		return p
	}
	return b.purses.get(key, func(p *purse) bool { return b.idle(p, now) })
}

// idle reports that p's deposits have expired and that its floor is full again.
func (b *LocalBudget) idle(p *purse, now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return b.index(now)-p.newest.Load() > tenths && p.floorLocked(b, now) == b.floorMax()
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

// floorMax is MinPerSecond·TTL retries, or one if that is less: a floor that
// never reached the price of a retry would be none.
func (b *LocalBudget) floorMax() int64 {
	perSecond := b.minPerSecond()
	if perSecond == 0 {
		return 0
	}
	return max(retry, int64(min(perSecond*float64(b.ttl()), 1<<62)))
}

// add is the path of every request: three atomic operations, and a lock once for
// each tenth of TTL.
func (p *purse) add(b *LocalBudget, now time.Duration, units int64) {
	if int64(now) >= p.until.Load() {
		p.turn(b, now)
	}
	p.earned[p.newest.Load()%tenths].units.Add(units)
}

// turn empties the slot whose tenth has begun.
func (p *purse) turn(b *LocalBudget, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := b.index(now)
	if p.newest.Load() >= index {
		return
	}
	s := &p.earned[index%tenths]
	s.units.Store(0)
	s.index.Store(index)
	p.newest.Store(index)
	p.until.Store((index + 1) * int64(b.ttl()/tenths))
}

func (p *purse) withdraw(b *LocalBudget, now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := b.index(now)
	floor := p.floorLocked(b, now)
	if p.earnedLocked(index)+floor < retry {
		return false
	}
	p.floor -= p.spendLocked(index, retry)
	return true
}

// spendLocked takes price from the deposits that expire first, and returns what
// they could not pay.
func (p *purse) spendLocked(index, price int64) (rest int64) {
	for i := index - tenths + 1; i <= index && price > 0; i++ {
		s := &p.earned[i%tenths]
		if s.index.Load() != i {
			continue
		}
		part := min(price, s.units.Load())
		s.units.Add(-part)
		price -= part
	}
	return price
}

// refund fills the floor first; what does not fit may be spent for another TTL.
func (p *purse) refund(b *LocalBudget, now time.Duration) {
	p.mu.Lock()
	part := min(retry, b.floorMax()-p.floorLocked(b, now))
	p.floor += part
	p.mu.Unlock()
	if part < retry {
		p.add(b, now, retry-part)
	}
}

func (p *purse) earnedLocked(index int64) (units int64) {
	for i := index - tenths + 1; i <= index; i++ {
		if s := &p.earned[i%tenths]; s.index.Load() == i {
			units += s.units.Load()
		}
	}
	return units
}

// floorLocked brings the floor up to now: at one retry a second, a unit each
// nanosecond. What is less than a unit is kept for later: however often it is
// asked, nothing is lost.
func (p *purse) floorLocked(b *LocalBudget, now time.Duration) int64 {
	most := b.floorMax()
	if p.floorAt == 0 {
		p.floor, p.floorAt = most, now
	}
	if since := min(now-p.floorAt, 2*time.Hour); since > 0 {
		whole, part := math.Modf(min(float64(since)*b.minPerSecond()+p.part, float64(most)))
		p.floor, p.part, p.floorAt = min(most, p.floor+int64(whole)), part, now
	}
	return p.floor
}
