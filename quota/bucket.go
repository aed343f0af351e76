package quota

import (
	"cmp"
	"math/bits"
	"time"
)

// farAhead is how far ahead, in µs, units can be reserved.
const farAhead = 24 * 60 * 60 * 1_000_000

// longAgo is how far, in µs, a bucket's time may be before 1970.
const longAgo = 1 << 60

// A Bucket is the state of a count as a Store keeps it: what is owed at a time. It
// carries its own unit, and Time, Level and Unit have a meaning for every Algorithm, so a
// Limit with other numbers or another Algorithm can read it. The zero Bucket owes
// nothing.
//
// The methods of Limit that take a Bucket are pure functions. All but Drain expect a
// Bucket that Drain returned for the same now.
type Bucket struct {
	// Time is when Level is owed, in µs since the Unix epoch: the latest charge of a
	// bucket, the start of a window, the newest entry of a log.
	Time int64

	// Level is what is owed, in parts; of a window, what was charged in it.
	Level int64

	// Unit is the number of parts in a unit of quota; 1 for windows and logs.
	Unit int64

	// Prev is what a SlidingWindow counted in the previous window, in units.
	Prev int64

	// Ahead is how far, in µs, Time was ahead of the clock when it was written: more than 0
	// only for what is reserved.
	Ahead int64

	// Log is what a SlidingLog remembers: entries of 9 bytes, oldest first. An entry is a
	// time of 7 bytes and units of 2 bytes, in big-endian order.
	Log string
}

// Drain returns b as of now, in µs since the Unix epoch, in the units of l. What has come
// back since is removed.
//
// A window or a log that was reserved ahead waits for its time. Any other time after now
// shows that the clock was set back: what was used then counts as used now. An invalid
// Bucket owes nothing.
func (l *Limit) Drain(b Bucket, now int64) Bucket {
	l.drain(&b, now)
	return b
}

// drain is Drain in place, which is faster than copying a Bucket. The same holds for
// wait, delay, try, tryWithin, describe and whole.
func (l *Limit) drain(b *Bucket, now int64) {
	switch l.algorithm {
	case FixedWindow:
		l.drainFixed(b, now)
	case SlidingWindow:
		l.drainSliding(b, now)
	case SlidingLog:
		l.drainLog(b, now)
	default:
		l.drainBucket(b, now)
	}
}

// Wait returns how long after now n units fit into b: 0 if they fit at once, Forever if n
// exceeds AtOnce.
func (l *Limit) Wait(b Bucket, n, now int64) time.Duration { return l.wait(&b, n, now) }

func (l *Limit) wait(b *Bucket, n, now int64) time.Duration {
	if n > l.atOnce {
		return Forever
	}
	switch l.algorithm {
	case FixedWindow:
		return after(now, l.fixedMoment(b, n))
	case SlidingWindow:
		return after(now, l.slidingMoment(b, n))
	case SlidingLog:
		return after(now, l.logMoment(b, n))
	default:
		return l.bucketWait(b, n, now)
	}
}

// Delay returns how long the next charge at now waits after it is admitted. It is 0 for
// all but LeakyBucket.
func (l *Limit) Delay(b Bucket, now int64) time.Duration { return l.delay(&b, now) }

func (l *Limit) delay(b *Bucket, now int64) time.Duration {
	if l.algorithm != LeakyBucket || b.Level == 0 {
		return 0
	}
	return after(now, l.whole(b))
}

// Try charges b with n units if they fit at now, and reports whether they do. Take uses
// it.
func (l *Limit) Try(b Bucket, n, now int64) (after Bucket, fits bool) {
	fits = l.try(&b, n, now)
	return b, fits
}

func (l *Limit) try(b *Bucket, n, now int64) (fits bool) {
	switch l.algorithm {
	case FixedWindow:
		fits = b.Time <= now && n <= l.atOnce-b.Level
	case SlidingWindow:
		fits = l.fitsSliding(b, n, now)
	case SlidingLog:
		return n <= l.atOnce-b.Level && l.chargeLog(b, n, now)
	default:
		fits = n <= l.atOnce && b.Level <= l.capacity-n*l.unit
	}
	if fits {
		b.Level += n * l.unit
	}
	return fits
}

// TryWithin charges n units at now + wait if wait is at most max. Reserve uses it. wait
// is also set if they do not fit; it is Forever if n exceeds AtOnce. Windows and logs are
// charged at most a day ahead.
func (l *Limit) TryWithin(b Bucket, n, now int64, max time.Duration) (after Bucket, wait time.Duration, fits bool) {
	wait, fits = l.tryWithin(&b, n, now, max)
	return b, wait, fits
}

func (l *Limit) tryWithin(b *Bucket, n, now int64, most time.Duration) (wait time.Duration, fits bool) {
	wait = l.wait(b, n, now)
	if wait == Forever {
		return wait, false
	}
	if l.algorithm == LeakyBucket {
		wait = l.delay(b, now)
	}
	if wait > 0 && wait > most {
		return wait, false
	}
	return wait, l.chargeAt(b, n, now, now+wait.Microseconds())
}

// chargeAt charges n units that fit at at. It reports whether the state has room for
// that.
func (l *Limit) chargeAt(b *Bucket, n, now, at int64) (fits bool) {
	switch {
	case l.algorithm.drains():
		return l.chargeBucket(b, n)
	case at > now+farAhead:
		return false
	case l.algorithm == SlidingLog:
		fits = l.chargeLog(b, n, at) // which also counts its entries until then
	default:
		l.drain(b, at)
		fits = l.try(b, n, at)
	}
	b.setAhead(now)
	return fits
}

// Settle charges b with n units, into debt if need be, but not beyond MaxDebt: see Cut. If
// n is negative it refunds -n units, never below zero. at is when the refunded charge was
// made, in µs since the Unix epoch, or now if zero. A window or a log refunds only what it
// still counts; buckets ignore at.
func (l *Limit) Settle(b Bucket, n, at, now int64) Bucket {
	after := l.owe(b, n, at, now)
	if n > 0 && after.Level > l.maxDebt {
		after.Level = max(b.Level, l.maxDebt)
	}
	return after
}

// Cut returns how many of n units Settle does not charge to b because of MaxDebt, rounded
// down.
func (l *Limit) Cut(b Bucket, n int64) int64 {
	if n <= 0 || !l.algorithm.drains() {
		return 0
	}
	room := max(0, l.maxDebt-b.Level)
	return max(0, n-(room+l.unit-1)/l.unit)
}

// Follow returns b, a count of l, after n units were charged by another Limit of its Name and
// another Shape, as Settle would; but no more than that one allows at once, because l did not
// decide on them.
func (l *Limit) Follow(b Bucket, by *Limit, n, at, now int64) Bucket {
	switch spare := by.atOnce - (b.Level+l.unit-1)/l.unit; {
	case n > 0:
		n = min(n, max(0, spare))
	case spare < 0: // it was not charged here, so it is not given back
		n = 0
	}
	return l.owe(b, n, at, now)
}

// owe is Settle without MaxDebt.
func (l *Limit) owe(b Bucket, n, at, now int64) Bucket {
	switch l.algorithm {
	case FixedWindow:
		l.settleFixed(&b, n, cmp.Or(at, now))
	case SlidingWindow:
		l.settleSliding(&b, n, cmp.Or(at, now))
	case SlidingLog:
		l.settleLog(&b, n, at, now)
		b.setAhead(now)
	default:
		l.settleBucket(&b, n)
	}
	return b
}

// Describe returns a Decision about the state of b at now, with Limit, Remaining,
// NextAfter and ResetAfter.
func (l *Limit) Describe(b Bucket, now int64) (d Decision) {
	l.describe(&d, &b, now)
	return d
}

func (l *Limit) describe(d *Decision, b *Bucket, now int64) {
	d.Limit, d.Remaining = l.quota, max(0, l.remaining(b, now))
	if d.ResetAfter = after(now, l.whole(b)); d.ResetAfter > 0 {
		d.NextAfter = l.wait(b, d.Remaining+1, now)
	}
}

// remaining returns how many units fit into b at now. It is negative in debt.
func (l *Limit) remaining(b *Bucket, now int64) int64 {
	switch {
	case l.algorithm.drains():
		return (l.capacity - b.Level) / l.unit
	case l.algorithm == SlidingLog:
		return l.atOnce - b.Level
	case b.Time > now:
		return 0 // until the window starts
	case l.algorithm == SlidingWindow:
		return l.atOnce - b.Level - l.weightOfPrev(b, now)
	default:
		return l.atOnce - b.Level
	}
}

// Whole returns when b owes nothing, in µs since the Unix epoch. It may be forgotten
// then.
func (l *Limit) Whole(b Bucket) int64 { return l.whole(&b) }

func (l *Limit) whole(b *Bucket) int64 {
	switch l.algorithm {
	case FixedWindow:
		return l.fixedWhole(b)
	case SlidingWindow:
		return l.slidingWhole(b)
	case SlidingLog:
		return l.logWhole(b)
	default:
		return b.Time + l.ticks(b.Level)*l.tick
	}
}

// moreThan reports whether b owes more than c, of the same Limit and time.
func (b *Bucket) moreThan(c *Bucket) bool {
	return cmp.Or(cmp.Compare(b.Level, c.Level), cmp.Compare(b.Prev, c.Prev), cmp.Compare(b.Time, c.Time),
		cmp.Compare(b.Log, c.Log)) > 0
}

// plausible reports whether a Store could have written b.
func (b *Bucket) plausible() bool {
	return b.Unit > 0 && b.Level >= 0 && b.Prev >= 0 && b.Time >= -longAgo && 0 <= b.Ahead && b.Ahead <= farAhead
}

// setAhead sets Ahead for a Time that was computed at now.
func (b *Bucket) setAhead(now int64) { b.Ahead = max(0, b.Time-now) }

// setBack returns the time that b.Time is from now on if the clock was set back since it was
// written, and otherwise b.Time.
func (b *Bucket) setBack(now int64) int64 { return min(b.Time, now+b.Ahead) }

// convert turns parts of 1/from into parts of 1/to, rounded up to a unit, so that a change
// forgives nothing.
func convert(parts, from, to int64) int64 {
	if from == to {
		return min(parts, maxExact)
	}
	return min(maxExact, saturatedProduct((parts+from-1)/from, to))
}

// saturatedProduct returns a·b, capped just above every number used here.
func saturatedProduct(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > maxExact {
		return maxExact + 1
	}
	return int64(lo)
}

// refundOf returns the number of units that a negative n refunds.
func refundOf(n int64) int64 { return -max(n, -maxExact) }

// addCapped returns level with n more units, at most most.
func addCapped(level, n, most int64) int64 { return min(most, level+min(n, maxExact)) }

// after returns how long at is after now, both in µs; at least 0.
func after(now, at int64) time.Duration {
	return time.Duration(max(0, at-now)) * time.Microsecond
}
