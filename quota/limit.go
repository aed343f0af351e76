package quota

import (
	"fmt"
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
)

// A Limit is a compiled Policy. It is immutable and safe for concurrent use.
// The zero Limit is no limit that a Store accepts.
type Limit struct {
	policy Policy
	name   unique.Handle[string]
	arithmetic
}

// arithmetic is what a bucket is counted with: Rate/Unit of a unit of quota
// drain from it per tick.
type arithmetic struct {
	tick     int64 // µs
	unit     int64
	rate     int64 // per tick
	capacity int64 // Burst·unit
	most     int64
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
	return &Limit{policy: p, name: unique.Make(p.Name), arithmetic: a}, nil
}

// arithmetic chooses the finest tick with which every number is exact.
func (p Policy) arithmetic() (arithmetic, error) {
	for tick := int64(1); tick <= maxTick && tick <= p.Window.Microseconds()+1; tick *= 10 {
		if a, ok := p.countedIn(tick); ok {
			if a.capacity > a.most {
				return a, &PolicyError{p.Name, "Burst", fmt.Sprintf("of %d takes more than 142 years to come back", p.Burst)}
			}
			return a, nil
		}
	}
	return arithmetic{}, &PolicyError{p.Name, "Quota", fmt.Sprintf(
		"%d in %v with a burst of %d cannot be counted exactly: choose rounder or smaller numbers", p.Quota, p.Window, p.Burst)}
}

// countedIn returns the arithmetic of p in ticks of the given µs, and whether
// its numbers stay exact. Quota/Window per tick is reduced to rate/unit.
func (p Policy) countedIn(tick int64) (a arithmetic, ok bool) {
	quota, window, nanos := p.Quota, int64(p.Window), tick*1000
	g := gcd(quota, window)
	quota, window = quota/g, window/g
	g = gcd(nanos, window)
	nanos, window = nanos/g, window/g
	if quota > maxExact/nanos || p.Burst > maxExact/window {
		return a, false
	}
	a = arithmetic{tick: tick, unit: window, rate: quota * nanos, capacity: p.Burst * window}
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

// Unit is how many parts a unit of quota is counted in.
func (l *Limit) Unit() int64 { return l.unit }

// Rate is how many parts drain per Tick.
func (l *Limit) Rate() int64 { return l.rate }

// Capacity is Burst, in parts.
func (l *Limit) Capacity() int64 { return l.capacity }

// Most is what a bucket can owe at most, in parts: at least Capacity, and more
// only in debt. What is charged beyond it is forgiven.
func (l *Limit) Most() int64 { return l.most }
