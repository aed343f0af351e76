package quota

import (
	"math/bits"
	"time"
)

// farAhead is how far, in µs, a bucket's time may be ahead of the clock's. A
// clock that was set back is waited for; one that was off by more than a day
// was wrong, and so is what it wrote.
const farAhead = 24 * 60 * 60 * 1_000_000

// longAgo is how far, in µs, a bucket's time may be before 1970.
const longAgo = 1 << 60

// A Bucket is the state of a count, as a Store keeps it: what is owed at a
// moment. It carries its own unit, and Time, Level and Unit have a meaning for
// every Algorithm, so it can be read by a Limit of other numbers, and of another
// Algorithm. The zero Bucket owes nothing.
//
// The methods of Limit that take a Bucket are pure functions. But for Drain they
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
// Time never runs backwards: a now before b.Time brings nothing back. A Bucket
// that nobody can have written, or from more than a day ahead, owes nothing.
func (l *Limit) Drain(b Bucket, now int64) Bucket {
	l.drain(&b, now)
	return b
}

// Wait returns how long after now n units fit into b: 0 if they fit at once,
// Forever if n exceeds AtOnce.
func (l *Limit) Wait(b Bucket, n, now int64) time.Duration { return l.wait(&b, n, now) }

// Delay returns how long what is charged next at now waits for its turn: zero but
// for LeakyBucket.
func (l *Limit) Delay(b Bucket, now int64) time.Duration { return l.delay(&b, now) }

// Try returns b with n units more and true if they fit at now, and b and false
// if not: what Take does.
func (l *Limit) Try(b Bucket, n, now int64) (after Bucket, fits bool) {
	fits = l.try(&b, n, now)
	return b, fits
}

// TryWithin is what Reserve does: n units are charged at now + wait, if that is
// no later than max. wait is set also if they do not fit, to Forever if n exceeds
// AtOnce. Windows and logs are charged no further ahead than a day.
func (l *Limit) TryWithin(b Bucket, n, now int64, max time.Duration) (after Bucket, wait time.Duration, fits bool) {
	wait, fits = l.tryWithin(&b, n, now, max)
	return b, wait, fits
}

// Settle returns b with n units more, into debt if need be, or with -n units less
// where n is negative, but never below zero. What is refunded was charged at at,
// in µs since the Unix epoch, or now if at is zero. Buckets do not ask for it;
// a window or a log gives back only what it still counts.
func (l *Limit) Settle(b Bucket, n, at, now int64) Bucket {
	l.settle(&b, n, at, now)
	return b
}

// Describe returns a Decision that says what b holds at now: Limit, Remaining,
// NextAfter and ResetAfter are set.
func (l *Limit) Describe(b Bucket, now int64) (d Decision) {
	l.describe(&d, &b, now)
	return d
}

// Whole returns when b owes nothing, in µs since the Unix epoch. From then on it
// may be forgotten.
func (l *Limit) Whole(b Bucket) int64 { return l.whole(&b) }

// believed reports whether somebody can have written b at now.
func (b *Bucket) believed(now int64) bool {
	return b.Unit > 0 && b.Level >= 0 && b.Prev >= 0 && b.Time >= -longAgo && b.Time <= now+farAhead
}

// units is what b, of whatever Algorithm, owes, rounded up.
func (b *Bucket) units() int64 {
	if b.Unit == 1 {
		return b.Level
	}
	return convert(b.Level, b.Unit, 1)
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

// given is how many units n, which is negative, gives back.
func given(n int64) int64 { return -max(n, -maxExact) }

// owed is level with n units more, of which there may be most.
func owed(level, n, most int64) int64 { return min(most, level+min(n, maxExact)) }

// after is how long after now it is at, in µs both; not negative.
func after(now, at int64) time.Duration {
	return time.Duration(max(0, at-now)) * time.Microsecond
}
