package quota

import "time"

// TokenBucket refills continuously: Quota units per Window, up to Burst. Its
// state is two integers, and every wait is exact.
//
// It admits at most Burst + Quota·t/Window units in any time t, so with the
// default Burst, which is Quota, up to 2·Quota in a Window: Quota at once, and
// the other Quota as they come back. To admit no more than L in any Window,
// choose a Burst and a Quota that add up to L.
const TokenBucket Algorithm = 0

// drainBucket is Drain for TokenBucket and LeakyBucket: less is owed by what has
// come back since.
func (l *Limit) drainBucket(b Bucket, now int64) Bucket {
	now = l.aligned(now)
	if !believed(b, now) {
		return Bucket{Time: now, Unit: l.unit}
	}
	level, early := b.Level, b.Time
	if b.Unit != l.unit {
		level = convert(level, b.Unit, l.unit)
	}
	if b.Prev != 0 {
		level += min(maxExact, saturatedProduct(b.Prev, l.unit))
	}
	level = min(level, l.most)
	if l.tick != 1 {
		if early = l.aligned(b.Time); early != b.Time {
			early += l.tick // written by a Limit with a finer tick
		}
	}
	if now <= early {
		return Bucket{Time: early, Level: level, Unit: l.unit}
	}
	ticks := now - early
	if l.tick != 1 {
		ticks /= l.tick
	}
	return Bucket{Time: now, Level: max(0, level-saturatedProduct(ticks, l.rate)), Unit: l.unit}
}

// aligned returns the latest tick that is not after t.
func (l *Limit) aligned(t int64) int64 {
	if l.tick == 1 {
		return t // as nearly always, and a division takes its time
	}
	return t - t%l.tick
}

// bucketWait is Wait for n units, which are no more than AtOnce.
func (l *Limit) bucketWait(b Bucket, n, now int64) time.Duration {
	over := b.Level - (l.capacity - n*l.unit)
	if over <= 0 {
		return 0
	}
	return l.until(b, over, now)
}

func (l *Limit) tryBucket(b Bucket, n int64) (after Bucket, fits bool) {
	if n > l.atOnce || b.Level > l.capacity-n*l.unit {
		return b, false
	}
	b.Level += n * l.unit
	return b, true
}

// chargeBucket charges beyond Burst, as far as anything can be owed.
func (l *Limit) chargeBucket(b Bucket, n int64) (after Bucket, fits bool) {
	cost := n * l.unit
	if cost > l.most-b.Level {
		return b, false
	}
	b.Level += cost
	return b, true
}

func (l *Limit) settleBucket(b Bucket, n int64) Bucket {
	if n < 0 {
		b.Level = max(0, b.Level-saturatedProduct(refund(n), l.unit))
	} else {
		b.Level = min(l.most, b.Level+saturatedProduct(n, l.unit))
	}
	return b
}

func (l *Limit) describeBucket(d *Decision, b Bucket, now int64) {
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

func (l *Limit) bucketWhole(b Bucket) int64 { return b.Time + l.ticks(b.Level)*l.tick }

// Charge is Settle for a bucket.
func (l *Limit) Charge(b Bucket, n int64) Bucket { return l.settleBucket(b, n) }

// Holds reports whether b can owe n units more.
func (l *Limit) Holds(b Bucket, n int64) bool { return saturatedProduct(n, l.unit) <= l.most-b.Level }

// whole is Whole for a bucket.
func (l *Limit) whole(b Bucket) int64 { return l.bucketWhole(b) }
