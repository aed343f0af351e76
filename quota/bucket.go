package quota

import (
	"cmp"
	"math/bits"
	"time"
)

// farAhead is how far, in µs, a state's time may be ahead of the clock's. Nothing is
// reserved further ahead, and a clock that is off by more than a day was wrong.
const farAhead = 24 * 60 * 60 * 1_000_000

// longAgo is how far, in µs, a bucket's time may be before 1970.
const longAgo = 1 << 60

// A Bucket is the state of a count, as a Store keeps it: what is owed at a
// moment. It carries its own unit, and Time, Level and Unit have a meaning for
// every Algorithm, so it can be read by a Limit of other numbers, and of another
// Algorithm. The zero Bucket owes nothing.
//
// The methods of Limit that take a Bucket are pure functions. All but Drain
// expect one that Drain returned, for the same now.
type Bucket struct {
	// Time is the moment at which Level is owed, in µs since the Unix epoch: the
	// latest charge of a bucket, the start of a window, the newest entry of a log.
	Time int64

	// Level is what is owed, in parts: in a window, what was charged in it.
	Level int64

	// Unit is how many parts make a unit of quota; 1 in windows and logs.
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
// If b.Time is after now, a bucket owes at now what it owed then. A window or a log
// waits for that time, since it may have been reserved. A Bucket that nobody can have
// written, or from more than a day ahead, owes nothing.
func (l *Limit) Drain(b Bucket, now int64) Bucket {
	l.drain(&b, now)
	return b
}

// drain is Drain in place, which is faster than to pass a Bucket about. So are wait,
// delay, try, tryWithin, describe and whole.
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

// Wait returns how long after now n units fit into b: 0 if they fit at once,
// Forever if n exceeds AtOnce.
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

// Delay returns how long what is charged next at now waits for its turn: zero but
// for LeakyBucket.
func (l *Limit) Delay(b Bucket, now int64) time.Duration { return l.delay(&b, now) }

func (l *Limit) delay(b *Bucket, now int64) time.Duration {
	if l.algorithm != LeakyBucket || b.Level == 0 {
		return 0
	}
	return after(now, l.whole(b))
}

// Try returns b with n units more and true if they fit at now, and b and false
// if not: what Take does.
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

// TryWithin is what Reserve does: n units are charged at now + wait, if that is
// no later than max. wait is set also if they do not fit, to Forever if n exceeds
// AtOnce. Windows and logs are charged no further ahead than a day.
func (l *Limit) TryWithin(b Bucket, n, now int64, max time.Duration) (after Bucket, wait time.Duration, fits bool) {
	wait, fits = l.tryWithin(&b, n, now, max)
	return b, wait, fits
}

func (l *Limit) tryWithin(b *Bucket, n, now int64, max time.Duration) (wait time.Duration, fits bool) {
	wait = l.wait(b, n, now)
	if wait == Forever {
		return wait, false
	}
	if l.algorithm == LeakyBucket {
		wait = l.delay(b, now)
	}
	if wait > 0 && wait > max {
		return wait, false
	}
	return wait, l.chargeAt(b, n, now, now+wait.Microseconds())
}

// chargeAt charges n units, which fit when it is at, and reports whether that is
// no more than can be kept.
func (l *Limit) chargeAt(b *Bucket, n, now, at int64) (fits bool) {
	switch {
	case l.algorithm.drains():
		return l.chargeBucket(b, n)
	case at > now+farAhead:
		return false
	case l.algorithm == SlidingLog:
		return l.chargeLog(b, n, at) // which counts what is in it until then, too
	default:
		l.drain(b, at)
		return l.try(b, n, at)
	}
}

// Settle returns b with n units more, into debt if need be, or with -n units less
// where n is negative, but never below zero. What is refunded was charged at at,
// in µs since the Unix epoch, or now if at is zero. Buckets do not ask for it;
// a window or a log gives back only what it still counts.
func (l *Limit) Settle(b Bucket, n, at, now int64) Bucket {
	switch l.algorithm {
	case FixedWindow:
		l.settleFixed(&b, n, cmp.Or(at, now))
	case SlidingWindow:
		l.settleSliding(&b, n, cmp.Or(at, now))
	case SlidingLog:
		l.settleLog(&b, n, at, now)
	default:
		l.settleBucket(&b, n)
	}
	return b
}

// Describe returns a Decision that says what b holds at now: Limit, Remaining,
// NextAfter and ResetAfter are set.
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

// remaining is how many units fit into b at now; it is negative in debt.
func (l *Limit) remaining(b *Bucket, now int64) int64 {
	switch {
	case l.algorithm.drains():
		return (l.capacity - b.Level) / l.unit
	case l.algorithm == SlidingLog:
		return l.atOnce - b.Level
	case b.Time > now:
		return 0 // until the window begins
	case l.algorithm == SlidingWindow:
		return l.atOnce - b.Level - l.weighed(b, now)
	default:
		return l.atOnce - b.Level
	}
}

// Whole returns when b owes nothing, in µs since the Unix epoch. From then on it
// may be forgotten.
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

// believed reports whether somebody can have written b at now.
func (b *Bucket) believed(now int64) bool {
	return b.Unit > 0 && b.Level >= 0 && b.Prev >= 0 && b.Time >= -longAgo && b.Time <= now+farAhead
}

// convert turns parts of 1/from into parts of 1/to, rounded up: a change of
// unit forgives nothing.
func convert(parts, from, to int64) int64 {
	if from == to {
		return min(parts, maxExact)
	}
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

// given is how many units n, which is negative, gives back.
func given(n int64) int64 { return -max(n, -maxExact) }

// owed is level with n units more, of which there may be most.
func owed(level, n, most int64) int64 { return min(most, level+min(n, maxExact)) }

// after is how long after now it is at, in µs both; not negative.
func after(now, at int64) time.Duration {
	return time.Duration(max(0, at-now)) * time.Microsecond
}
