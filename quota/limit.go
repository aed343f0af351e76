package quota

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unique"
)

const (
	// maxExact is the largest integer below which a float64, the only number of Redis'
	// Lua, is exact.
	maxExact = 1<<53 - 1

	// maxOwed is the longest time, in µs, in which a bucket may pay back its debt: 142
	// years. Added to the time of day it is exact in a float64, and in nanoseconds it
	// fits a time.Duration.
	maxOwed = 1 << 52

	// maxTick is the coarsest unit of time, in µs.
	maxTick = 1_000_000

	// maxWindow is the longest window, in µs, of windows and logs: 71 years. Twice that,
	// added to the time of day, is exact.
	maxWindow = 1 << 51
)

// A Limit is a compiled Policy: what a Charge counts against. Policy.Compile returns one.
// It is immutable, safe for concurrent use, and must not be copied. Stores reject the
// zero Limit.
type Limit struct {
	arithmetic
	policy Policy
	id     unique.Handle[Policy] // of policy: equal policies count together
	name   unique.Handle[string]
	count  unique.Handle[string] // of name and shape: what one count of a Key is
	spread uint64                // a hash of the name
	shape  string
	latest atomic.Pointer[[4]int64] // of a Calendar, cached
}

// spreadSeed makes the places of counts in a Memory unpredictable.
var spreadSeed = maphash.MakeSeed()

// arithmetic is what every decision reads. Rate/Unit of a unit of quota drain from a
// bucket per tick. Windows and logs count whole units.
type arithmetic struct {
	algorithm Algorithm
	tick      int64 // µs
	unit      int64
	rate      int64 // per tick; buckets only
	capacity  int64 // atOnce·unit
	most      int64
	maxDebt   int64
	atOnce    int64
	quota     int64
	window    int64 // µs, a multiple of tick; windows and logs only, and 0 with a Calendar
}

// Compile checks p and chooses the units to count it in. The error joins a *PolicyError
// for each invalid field.
func (p Policy) Compile() (*Limit, error) {
	p = p.withDefaults()
	if err := p.faults(); err != nil {
		return nil, err
	}
	a, err := p.arithmetic()
	if err != nil {
		return nil, err
	}
	a.algorithm, a.quota = p.Algorithm, p.Quota
	a.maxDebt = p.maxDebt(&a)
	shape := p.shape(&a)
	return &Limit{
		arithmetic: a, policy: p, shape: shape, spread: maphash.String(spreadSeed, p.Name),
		id: unique.Make(p), name: unique.Make(p.Name), count: unique.Make(p.Name + "\t" + shape),
	}, nil
}

// arithmetic chooses the numbers to count p with.
func (p Policy) arithmetic() (arithmetic, error) {
	switch p.Algorithm {
	case FixedWindow:
		return p.wholeUnits(1, maxExact), nil
	case SlidingLog:
		return p.wholeUnits(1, maxLogOwed), nil
	case SlidingWindow:
		return p.slidingArithmetic()
	default:
		return p.bucketArithmetic()
	}
}

// wholeUnits returns the arithmetic for whole units, with a debt of at most most.
func (p Policy) wholeUnits(tick, most int64) arithmetic {
	return arithmetic{
		tick: tick, unit: 1, capacity: p.Quota, most: most, atOnce: p.Quota,
		window: p.Window.Microseconds(),
	}
}

// slidingArithmetic chooses the finest tick that divides Window and keeps Quota·Window
// exact.
func (p Policy) slidingArithmetic() (arithmetic, error) {
	for tick := int64(1); tick <= maxTick && p.Window.Microseconds()%tick == 0; tick *= 10 {
		if most := maxExact / (p.Window.Microseconds() / tick); p.Quota <= most {
			return p.wholeUnits(tick, most), nil
		}
	}
	return arithmetic{}, &PolicyError{p.Name, "Quota", fmt.Sprintf(
		"is %d in %v: cannot be counted exactly, choose rounder or smaller numbers", p.Quota, p.Window)}
}

// bucketArithmetic chooses the finest tick that keeps every number exact.
func (p Policy) bucketArithmetic() (arithmetic, error) {
	for tick := int64(1); tick <= maxTick && tick <= p.Window.Microseconds()+1; tick *= 10 {
		if a, ok := p.bucketInTicks(tick); ok {
			if a.capacity > a.most {
				reason := fmt.Sprintf("is %d: must come back within 142 years", p.Burst)
				return a, &PolicyError{p.Name, "Burst", reason}
			}
			return a, nil
		}
	}
	return arithmetic{}, &PolicyError{p.Name, "Quota", fmt.Sprintf(
		"is %d in %v with a Burst of %d: cannot be counted exactly, choose rounder or smaller numbers",
		p.Quota, p.Window, p.Burst)}
}

// bucketInTicks returns the arithmetic of p in ticks of the given µs, and whether its
// numbers stay exact. It reduces Quota/Window per tick to rate/unit.
func (p Policy) bucketInTicks(tick int64) (a arithmetic, ok bool) {
	quota, window, nanos := p.Quota, int64(p.Window), tick*1000
	g := gcd(quota, window)
	quota, window = quota/g, window/g
	g = gcd(nanos, window)
	nanos, window = nanos/g, window/g
	atOnce := p.Burst
	if p.Algorithm == LeakyBucket {
		atOnce++
	}
	if quota > maxExact/nanos || atOnce > maxExact/window || atOnce < p.Burst {
		return a, false
	}
	a = arithmetic{tick: tick, unit: window, rate: quota * nanos, capacity: atOnce * window, atOnce: atOnce}
	a.most = min(maxExact, saturatedProduct(a.rate, maxOwed/tick))
	return a, true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Policy returns the policy of l with its defaults filled in.
func (l *Limit) Policy() Policy { return l.policy }

// Name returns the name of l's policy, which is never empty.
func (l *Limit) Name() string { return l.policy.Name }

// Tick returns the unit of time of l: 1 µs, or 10, 100 … µs up to 1 s where a finer one
// would be inexact. The rate is always exact; a Tick only rounds the times at which units
// come back.
func (l *Limit) Tick() time.Duration { return time.Duration(l.tick) * time.Microsecond }

// Unit returns the number of parts in a unit of quota: 1 for all but buckets.
func (l *Limit) Unit() int64 { return l.unit }

// Rate returns how many parts drain from a bucket per Tick, and 0 for other algorithms.
func (l *Limit) Rate() int64 { return l.rate }

// AtOnce returns how many units fit at once if nothing is owed: Burst, and one more with
// LeakyBucket. A charge of more never fits.
func (l *Limit) AtOnce() int64 { return l.atOnce }

// Capacity returns AtOnce in parts.
func (l *Limit) Capacity() int64 { return l.capacity }

// Most returns the highest debt in parts. It is at least Capacity. Charges beyond it are
// forgiven.
func (l *Limit) Most() int64 { return l.most }

// MaxDebt returns the highest debt in parts that Settle leaves: Capacity, and what comes back
// in Policy.MaxDebt. For windows and logs, which forget all debt
// with the window, it is Most.
func (l *Limit) MaxDebt() int64 { return l.maxDebt }

// maxDebt returns MaxDebt of a.
func (p Policy) maxDebt(a *arithmetic) int64 {
	if !p.Algorithm.drains() {
		return a.most
	}
	long := cmp.Or(p.MaxDebt, min(10*min(p.Window, 24*time.Hour), 24*time.Hour))
	return min(a.most, a.capacity+saturatedProduct(long.Microseconds()/a.tick, a.rate))
}

// Shape says how the counts of l are to be read, as Stores keep them: a bucket's tick in µs, rate and
// unit, or the window in µs.
//
//	TokenBucket, LeakyBucket   b1,1,360000000
//	FixedWindow                f60000000
//	FixedWindow of a Calendar  cday, cweek, cmonth
//	SlidingWindow              s1,60000000 (with its tick)
//	SlidingLog                 l60000000
//
// Limits of one Name and Shape share one count. If a Key has counts of one Name and several
// Shapes, because two versions of a program use it, each Limit decides by its own count,
// which begins with what the others owe; and what is charged is charged on all of them, until
// none owes anything.
func (l *Limit) Shape() string { return l.shape }

// shape returns the Shape of a.
func (p Policy) shape(a *arithmetic) string {
	switch {
	case p.Calendar != 0:
		return "c" + p.Calendar.String()
	case p.Algorithm == FixedWindow:
		return fmt.Sprintf("f%d", a.window)
	case p.Algorithm == SlidingWindow:
		return fmt.Sprintf("s%d,%d", a.tick, a.window)
	case p.Algorithm == SlidingLog:
		return fmt.Sprintf("l%d", a.window)
	default:
		return fmt.Sprintf("b%d,%d,%d", a.tick, a.rate, a.unit)
	}
}

// Remembers returns until when, in µs since the Unix epoch, the ID of a Charge at now is
// remembered: for a Window, or until the end of a Calendar's.
func (l *Limit) Remembers(now int64) int64 {
	if l.policy.Calendar != 0 {
		_, end := l.calendarAt(now)
		return end
	}
	return now + max(1, l.policy.Window.Microseconds())
}
