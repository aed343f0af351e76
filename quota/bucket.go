package quota

import (
	"cmp"
	"math/bits"
	"time"
)

// farAhead is how far, in µs, a bucket's time may be ahead of the clock's. A
// clock that was set back is waited for; one that was off by more than a day
// was wrong, and so is what it wrote.
const farAhead = 24 * 60 * 60 * 1_000_000

// A Bucket is the state of a count, as a Store keeps it: what is owed at a
// moment. It carries its own unit, and Time, Level and Unit have a meaning for
// every Algorithm, so it can be read by a Limit of other numbers, and of another
// Algorithm. The zero Bucket owes nothing.
//
// The methods of Limit that take a Bucket are pure functions. But for Drain they
// expect one that Drain returned, for the same now.
type Bucket struct {
	// Time is the moment at which Level is owed, in µs since the Unix epoch: the
	// latest charge or reading of a bucket, the start of a window, the newest
	// entry of a log.
	Time int64

	// Level is what is owed, in parts. FixedWindow and SlidingWindow count what
	// was charged in the window that began at Time.
	Level int64

	// Unit is how many parts make a unit of quota; 1 but for buckets.
	Unit int64

	// Prev is what a SlidingWindow counted in the window before, in units.
	Prev int64

	// Log is what a SlidingLog remembers: entries of 9 bytes, oldest first, which
	// are a time, 7 bytes, and units, 2 bytes, in big-endian order.
	Log string
}

// Drain returns b as it is at now, in µs since the Unix epoch, as l counts: what
// no longer matters is gone.
//
// Time never runs backwards: a now before b.Time brings nothing back. A Bucket
// that nobody can have written, or from more than a day ahead, owes nothing.
func (l *Limit) Drain(b Bucket, now int64) Bucket {
	switch l.algorithm {
	case FixedWindow:
		return l.drainFixed(b, now)
	case SlidingWindow:
		return l.drainSliding(b, now)
	case SlidingLog:
		return l.drainLog(b, now)
	default:
		return l.drainBucket(b, now)
	}
}

// Wait returns how long after now n units fit into b: 0 if they fit at once,
// Forever if n exceeds AtOnce.
func (l *Limit) Wait(b Bucket, n, now int64) time.Duration {
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

// Delay returns how long what is charged next at now waits for its turn: zero but
// for LeakyBucket.
func (l *Limit) Delay(b Bucket, now int64) time.Duration {
	if l.algorithm != LeakyBucket {
		return 0
	}
	return l.turn(b, now)
}

// Try returns b with n units more and true if they fit at now, and b and false
// if not: what Take does.
func (l *Limit) Try(b Bucket, n, now int64) (after Bucket, fits bool) {
	switch l.algorithm {
	case FixedWindow:
		return l.tryFixed(b, n, now)
	case SlidingWindow:
		return l.trySliding(b, n, now)
	case SlidingLog:
		return l.tryLog(b, n, now)
	default:
		return l.tryBucket(b, n)
	}
}

// TryWithin is what Reserve does: n units are charged at now + wait, if that is
// no later than max. wait is set also if they do not fit, to Forever if n exceeds
// AtOnce. Windows and logs are charged no further ahead than a day.
func (l *Limit) TryWithin(b Bucket, n, now int64, max time.Duration) (after Bucket, wait time.Duration, fits bool) {
	wait = l.Wait(b, n, now)
	switch {
	case wait == Forever:
		return b, wait, false
	case l.algorithm == LeakyBucket:
		wait = l.turn(b, now)
	}
	if wait > 0 && wait > max {
		return b, wait, false
	}
	after, fits = l.chargeAt(b, n, now, now+wait.Microseconds())
	return after, wait, fits
}

// chargeAt returns b with n units more, which fit when it is at, and true; or b
// and false if that is more than can be kept.
func (l *Limit) chargeAt(b Bucket, n, now, at int64) (after Bucket, fits bool) {
	switch {
	case l.algorithm.bucket():
		return l.chargeBucket(b, n)
	case at > now+farAhead:
		return b, false
	case l.algorithm == FixedWindow:
		return l.tryFixed(l.drainFixed(b, at), n, at)
	case l.algorithm == SlidingWindow:
		return l.trySliding(l.drainSliding(b, at), n, at)
	default:
		return l.chargeLog(b, n, at)
	}
}

// Settle returns b with n units more, into debt if need be, or with -n units less
// where n is negative, but never below zero. What is refunded was charged at at,
// in µs since the Unix epoch, or now if at is zero. Buckets do not ask for it;
// a window or a log gives back only what it still counts.
func (l *Limit) Settle(b Bucket, n, at, now int64) Bucket {
	switch l.algorithm {
	case FixedWindow:
		return l.settleFixed(b, n, cmp.Or(at, now))
	case SlidingWindow:
		return l.settleSliding(b, n, cmp.Or(at, now))
	case SlidingLog:
		return l.settleLog(b, n, at, now)
	default:
		return l.settleBucket(b, n)
	}
}

// Describe returns a Decision that says what b holds at now: Limit, Remaining,
// NextAfter and ResetAfter are set.
func (l *Limit) Describe(b Bucket, now int64) (d Decision) {
	l.describe(&d, b, now)
	return d
}

// describe is Describe for a d that is zero. A Decision is large, so it is filled
// in where it is to stay.
func (l *Limit) describe(d *Decision, b Bucket, now int64) {
	d.Limit = l.quota
	if l.algorithm.bucket() {
		l.describeBucket(d, b, now)
		return
	}
	d.Remaining = l.remaining(b, now)
	if d.ResetAfter = after(now, l.Whole(b)); d.ResetAfter > 0 {
		d.NextAfter = l.Wait(b, d.Remaining+1, now)
	}
}

// remaining is how many units fit into b, of a window or a log, at now.
func (l *Limit) remaining(b Bucket, now int64) int64 {
	switch l.algorithm {
	case FixedWindow:
		return l.fixedRemaining(b, now)
	case SlidingWindow:
		return l.slidingRemaining(b, now)
	default:
		return max(0, l.atOnce-b.Level)
	}
}

// Whole returns when b owes nothing, in µs since the Unix epoch. From then on it
// may be forgotten.
func (l *Limit) Whole(b Bucket) int64 {
	switch l.algorithm {
	case FixedWindow:
		return l.fixedWhole(b)
	case SlidingWindow:
		return l.slidingWhole(b)
	case SlidingLog:
		return l.logWhole(b)
	default:
		return l.bucketWhole(b)
	}
}

// after is how long after now it is at, in µs both; not negative.
func after(now, at int64) time.Duration {
	return time.Duration(max(0, at-now)) * time.Microsecond
}

// believed reports whether somebody can have written b at now.
func believed(b Bucket, now int64) bool {
	return b.Unit > 0 && b.Level >= 0 && b.Prev >= 0 && b.Time <= now+farAhead
}

// units is what b, of whatever Algorithm, owes, in units rounded up; no more than
// l lets be owed.
func (l *Limit) units(b Bucket) int64 {
	if b.Unit != 1 {
		b.Level = convert(b.Level, b.Unit, 1)
	}
	return min(l.most, b.Level)
}

// refund is how many units n, which is negative, gives back.
func refund(n int64) int64 { return -max(n, -maxExact) }

// indebted is owed with n units more, and at most most.
func indebted(owed, n, most int64) int64 { return min(most, owed+min(n, maxExact)) }

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
