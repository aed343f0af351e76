package quota

import (
	"cmp"
	"fmt"
	"time"
)

// An Algorithm is a way of counting. The zero Algorithm is TokenBucket.
type Algorithm int

// String returns the name of a's constant.
func (a Algorithm) String() string {
	names := [...]string{"TokenBucket", "LeakyBucket", "FixedWindow", "SlidingWindow", "SlidingLog"}
	if a < 0 || int(a) >= len(names) {
		return fmt.Sprintf("Algorithm(%d)", int(a))
	}
	return names[a]
}

// suffix is what the name of a policy that has none ends with: short, since it is
// sent with each answer.
func (a Algorithm) suffix() string {
	switch a {
	case LeakyBucket:
		return " leaky"
	case FixedWindow:
		return " fixed"
	case SlidingWindow:
		return " sliding"
	case SlidingLog:
		return " log"
	default:
		return ""
	}
}

// drains reports whether a counts with a bucket.
func (a Algorithm) drains() bool { return a == TokenBucket || a == LeakyBucket }

// What follows is what the exported methods of Limit do, but in place, since a
// Bucket is too large to be handed around in a Store's hot path.

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

func (l *Limit) delay(b *Bucket, now int64) time.Duration {
	if l.algorithm != LeakyBucket || b.Level == 0 {
		return 0
	}
	return l.until(b, b.Level, now)
}

func (l *Limit) try(b *Bucket, n, now int64) (fits bool) {
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

func (l *Limit) settle(b *Bucket, n, at, now int64) {
	switch l.algorithm {
	case FixedWindow:
		l.settleFixed(b, n, cmp.Or(at, now))
	case SlidingWindow:
		l.settleSliding(b, n, cmp.Or(at, now))
	case SlidingLog:
		l.settleLog(b, n, at, now)
	default:
		l.settleBucket(b, n)
	}
}

// describe expects a d that is zero.
func (l *Limit) describe(d *Decision, b *Bucket, now int64) {
	d.Limit = l.quota
	if l.algorithm.drains() {
		l.describeBucket(d, b.Level, b.Time-now)
		return
	}
	d.Remaining = l.remaining(b, now)
	if d.ResetAfter = after(now, l.whole(b)); d.ResetAfter > 0 {
		d.NextAfter = l.wait(b, d.Remaining+1, now)
	}
}

// remaining is how many units fit into b, a window or a log, at now.
func (l *Limit) remaining(b *Bucket, now int64) int64 {
	switch l.algorithm {
	case FixedWindow:
		return l.fixedRemaining(b, now)
	case SlidingWindow:
		return l.slidingRemaining(b, now)
	default:
		return max(0, l.atOnce-b.Level)
	}
}

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
