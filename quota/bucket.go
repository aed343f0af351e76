package quota

import (
	"math/bits"
	"time"
)

// farAhead is how far, in µs, a bucket's time may be ahead of the clock's. A
// clock that was set back is waited for; one that was off by more than a day
// was wrong, and so is what it wrote.
const farAhead = 24 * 60 * 60 * 1_000_000

// A Bucket is the state of a token bucket, as a Store keeps it: what is owed at
// a moment. It carries its own unit, so that it can be read by a Limit of other
// numbers. The zero Bucket owes nothing.
type Bucket struct {
	Time  int64 // µs since the Unix epoch
	Level int64 // what is owed, in parts
	Unit  int64 // how many parts make a unit of quota
}

// Drain returns b as it is at now, in µs since the Unix epoch, counted in l's
// unit: less by what has come back since, never below zero.
//
// Time never runs backwards: a now before b.Time changes nothing.
func (l *Limit) Drain(b Bucket, now int64) Bucket {
	now = l.aligned(now)
	if b.Unit <= 0 || b.Level < 0 || b.Time > now+farAhead {
		return Bucket{Time: now, Unit: l.unit}
	}
	if b.Unit != l.unit {
		b.Level = convert(b.Level, b.Unit, l.unit)
		b.Unit = l.unit
	}
	b.Level = min(b.Level, l.most)
	if early := l.aligned(b.Time); early != b.Time {
		b.Time = early + l.tick // written by a Limit with a finer tick
	}
	if now <= b.Time {
		return b
	}
	ticks := now - b.Time
	if l.tick != 1 {
		ticks /= l.tick
	}
	b.Level = max(0, b.Level-saturatedProduct(ticks, l.rate))
	b.Time = now
	return b
}

// aligned returns the latest tick that is not after t.
func (l *Limit) aligned(t int64) int64 {
	if l.tick == 1 {
		return t // as nearly always, and a division takes its time
	}
	return t - t%l.tick
}

// Wait returns how long after now n units fit into b, which is drained: 0 if
// they fit at once, Forever if n exceeds Burst.
func (l *Limit) Wait(b Bucket, n, now int64) time.Duration {
	if n > l.policy.Burst {
		return Forever
	}
	over := b.Level - (l.capacity - n*l.unit)
	if over <= 0 {
		return 0
	}
	return l.until(b, over, now)
}

// Charge adds n units to what b, which is drained, owes. A negative n is a
// refund: it takes away no more than is owed. What is owed is at most l.Most.
func (l *Limit) Charge(b Bucket, n int64) Bucket {
	if n < 0 {
		b.Level = max(0, b.Level-saturatedProduct(-max(n, -maxExact), l.unit))
	} else {
		b.Level = min(l.most, b.Level+saturatedProduct(n, l.unit))
	}
	return b
}

// Holds reports whether b, which is drained, can owe n units more.
func (l *Limit) Holds(b Bucket, n int64) bool {
	return saturatedProduct(n, l.unit) <= l.most-b.Level
}

// Describe returns a Decision that says what b, which is drained, holds at now:
// Limit, Remaining, NextAfter and ResetAfter are set.
func (l *Limit) Describe(b Bucket, now int64) (d Decision) {
	l.describe(&d, b, now)
	return d
}

// describe is Describe for a d that is zero. A Decision is large, so it is filled
// in where it is to stay.
func (l *Limit) describe(d *Decision, b Bucket, now int64) {
	d.Limit = l.policy.Quota
	if b.Level < l.capacity {
		d.Remaining = (l.capacity - b.Level) / l.unit
	}
	if b.Level > 0 {
		d.NextAfter = l.until(b, b.Level-(l.capacity-(d.Remaining+1)*l.unit), now)
		d.ResetAfter = l.until(b, b.Level, now)
	}
}

// until returns how long after now so many parts of what b owes are paid back.
func (l *Limit) until(b Bucket, parts, now int64) time.Duration {
	return time.Duration(b.Time-now+l.ticks(parts)*l.tick) * time.Microsecond
}

// ticks returns how many ticks it takes to pay so many parts back.
func (l *Limit) ticks(parts int64) int64 { return (parts + l.rate - 1) / l.rate }

// whole returns when all that b owes is paid back, in µs since the Unix epoch.
func (l *Limit) whole(b Bucket) int64 {
	return b.Time + l.ticks(b.Level)*l.tick
}

// convert turns parts of 1/from into parts of 1/to, rounded up: a change of
// unit forgives nothing.
func convert(parts, from, to int64) int64 {
	hi, lo := bits.Mul64(uint64(parts), uint64(to))
	if hi >= uint64(from) {
		return maxExact
	}
	q, rem := bits.Div64(hi, lo, uint64(from))
	if rem != 0 {
		q++
	}
	return int64(min(q, maxExact))
}

// saturatedProduct is a·b, or a little more than any number here if that is more.
func saturatedProduct(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > maxExact {
		return maxExact + 1
	}
	return int64(lo)
}
