package quota

import "time"

// TokenBucket refills continuously: Quota units per Window, up to Burst. Its state is two
// integers, and every wait is exact.
//
// It admits at most Burst + Quota·t/Window units in any time t, in whole ticks. With the
// default Burst, which is Quota, that is up to 2·Quota in a Window: Quota at once, and
// another Quota as they come back. To admit at most L in any Window, choose a Burst and a
// Quota that add up to L.
const TokenBucket Algorithm = 0

// drainBucket removes what has come back since b.Time.
func (l *Limit) drainBucket(b *Bucket, now int64) {
	level, at := int64(0), now
	if b.plausible() {
		at = min(b.Time, now) // a future time is from another clock
		level = addCapped(convert(b.Level, b.Unit, l.unit), saturatedProduct(b.Prev, l.unit), l.most)
	}
	if early := at % l.tick; early != 0 {
		at += l.tick - early // from a Limit with a finer tick
	}
	if ticks := (now - at) / l.tick; ticks > 0 {
		at += ticks * l.tick
		level = max(0, level-saturatedProduct(ticks, l.rate))
	}
	if level == 0 {
		at = now - now%l.tick
	}
	*b = Bucket{Time: at, Level: level, Unit: l.unit}
}

// bucketWait returns how long n units, at most AtOnce, must wait.
func (l *Limit) bucketWait(b *Bucket, n, now int64) time.Duration {
	over := b.Level - (l.capacity - n*l.unit)
	if over <= 0 {
		return 0
	}
	return after(now, b.Time+l.ticks(over)*l.tick)
}

// chargeBucket charges n units, beyond Burst if need be. It reports whether the debt
// stays within its bound.
func (l *Limit) chargeBucket(b *Bucket, n int64) (fits bool) {
	if n*l.unit > l.most-b.Level {
		return false
	}
	b.Level += n * l.unit
	return true
}

func (l *Limit) settleBucket(b *Bucket, n int64) {
	if n < 0 {
		b.Level = max(0, b.Level-saturatedProduct(refundOf(n), l.unit))
	} else {
		b.Level = addCapped(b.Level, saturatedProduct(n, l.unit), l.most)
	}
}

// ticks returns how many ticks it takes to pay parts back.
func (l *Limit) ticks(parts int64) int64 { return (parts + l.rate - 1) / l.rate }
