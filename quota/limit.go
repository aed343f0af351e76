package quota

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unique"
)

const (
	// maxExact is the largest integer up to which a float64, the only number of
	// Redis' Lua, holds every integer.
	maxExact = 1<<53 - 1

	// maxOwed bounds, in µs, the time a bucket needs to become whole: 142 years.
	// Together with the time of day it is exact in a float64, and in nanoseconds
	// it is a time.Duration.
	maxOwed = 1 << 52

	// maxTick is the coarsest unit of time, in µs.
	maxTick = 1_000_000

	// maxWindow bounds, in µs, the window of what counts by windows or remembers
	// for one: 71 years, twice which is exact together with the time of day.
	maxWindow = 1 << 51
)

// A Limit is a compiled Policy. It is immutable and safe for concurrent use, and
// must not be copied. The zero Limit is no limit that a Store accepts.
type Limit struct {
	arithmetic
	policy Policy
	id     unique.Handle[Policy] // of policy: what is compiled alike counts alike
	name   unique.Handle[string]
	spread uint64                   // a hash of Name
	latest atomic.Pointer[[4]int64] // windows of a Calendar, as last looked up
}

// spreadSeed keeps the places of a Key's counts in a Memory from being predictable.
var spreadSeed = maphash.MakeSeed()

// arithmetic is what every decision reads. Rate/Unit of a unit of quota drain from
// a bucket per tick; windows and logs count whole units.
type arithmetic struct {
	algorithm Algorithm
	tick      int64 // µs
	unit      int64
	rate      int64 // per tick; of buckets only
	capacity  int64 // atOnce·unit
	most      int64
	atOnce    int64
	quota     int64
	window    int64 // µs, a multiple of tick; of windows and logs only, and 0 with a Calendar
}

// Compile checks p and chooses the units it is counted in. The error joins a
// *PolicyError for each fault.
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
	return &Limit{
		arithmetic: a, policy: p,
		id: unique.Make(p), name: unique.Make(p.Name), spread: maphash.String(spreadSeed, p.Name),
	}, nil
}

// arithmetic chooses the numbers that p is counted with.
func (p Policy) arithmetic() (arithmetic, error) {
	switch p.Algorithm {
	case FixedWindow:
		return p.counting(1, maxExact), nil
	case SlidingLog:
		return p.counting(1, maxLogOwed), nil
	case SlidingWindow:
		return p.weighing()
	default:
		return p.draining()
	}
}

// counting returns the arithmetic of whole units, of which most may be owed.
func (p Policy) counting(tick, most int64) arithmetic {
	return arithmetic{
		tick: tick, unit: 1, capacity: p.Quota, most: most, atOnce: p.Quota,
		window: p.Window.Microseconds(),
	}
}

// weighing chooses the finest tick that divides Window and with which Quota·Window
// is exact.
func (p Policy) weighing() (arithmetic, error) {
	for tick := int64(1); tick <= maxTick && p.Window.Microseconds()%tick == 0; tick *= 10 {
		if most := maxExact / (p.Window.Microseconds() / tick); p.Quota <= most {
			return p.counting(tick, most), nil
		}
	}
	return arithmetic{}, &PolicyError{p.Name, "Quota", fmt.Sprintf(
		"%d in %v cannot be weighed exactly: choose rounder or smaller numbers", p.Quota, p.Window)}
}

// draining chooses the finest tick with which every number is exact.
func (p Policy) draining() (arithmetic, error) {
	for tick := int64(1); tick <= maxTick && tick <= p.Window.Microseconds()+1; tick *= 10 {
		if a, ok := p.countedIn(tick); ok {
			if a.capacity > a.most {
				reason := fmt.Sprintf("of %d takes more than 142 years to come back", p.Burst)
				return a, &PolicyError{p.Name, "Burst", reason}
			}
			return a, nil
		}
	}
	return arithmetic{}, &PolicyError{p.Name, "Quota", fmt.Sprintf(
		"%d in %v with a burst of %d cannot be counted exactly: choose rounder or smaller numbers",
		p.Quota, p.Window, p.Burst)}
}

// countedIn returns the arithmetic of p in ticks of the given µs, and whether
// its numbers stay exact. Quota/Window per tick is reduced to rate/unit.
func (p Policy) countedIn(tick int64) (a arithmetic, ok bool) {
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

// Policy returns what l was compiled from, its defaults filled in.
func (l *Limit) Policy() Policy { return l.policy }

// Name returns the name of l's policy, which is never empty.
func (l *Limit) Name() string { return l.policy.Name }

// Tick is the unit of time that l is counted in: 1 µs, or 10, 100 … µs up to
// 1 s where a finer one would make a number inexact. It is not a rounding of
// the rate, which is always exact, but of the moments at which units come back.
func (l *Limit) Tick() time.Duration { return time.Duration(l.tick) * time.Microsecond }

// Unit is how many parts a unit of quota is counted in: 1 but for buckets.
func (l *Limit) Unit() int64 { return l.unit }

// Rate is how many parts drain from a bucket per Tick; from anything else, none.
func (l *Limit) Rate() int64 { return l.rate }

// AtOnce is how many units fit at once where nothing is owed: Burst, and one more
// with LeakyBucket. What costs more never fits.
func (l *Limit) AtOnce() int64 { return l.atOnce }

// Capacity is AtOnce, in parts.
func (l *Limit) Capacity() int64 { return l.capacity }

// Most is what can be owed at most, in parts: at least Capacity, and more only in
// debt. What is charged beyond it is forgiven.
func (l *Limit) Most() int64 { return l.most }

// Remembers returns until when, in µs since the Unix epoch, the ID of a Charge that
// is made at now is remembered: for a Window, or to the end of a Calendar's.
func (l *Limit) Remembers(now int64) int64 {
	if l.policy.Calendar != 0 {
		_, end := l.calendarAt(now)
		return end
	}
	return now + max(1, l.policy.Window.Microseconds())
}
