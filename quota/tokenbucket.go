package quota

import "time"

// TokenBucket refills continuously: Quota units per Window, up to Burst. Its
// state is two integers, and every wait is exact.
//
// It admits at most Burst + Quota·t/Window units in any time t, in whole ticks. So
// with the default Burst, which is Quota, it is up to 2·Quota in a Window: Quota at
// once, and the other Quota as they come back. To admit no more than L in any
// Window, choose a Burst and a Quota that add up to L.
const TokenBucket Algorithm = 0

// drainBucket drains what has come back since b.Time.
func (l *Limit) drainBucket(b *Bucket, now int64) {
	if l.tick != 1 {
		now -= now % l.tick
	}
	if b.Unit != l.unit || uint64(b.Level) > uint64(l.most) || b.Prev != 0 || b.Log != "" || l.tick != 1 || b.Time > now+farAhead {
		l.adopt(b, now)
	}
	if now <= b.Time {
		return
	}
	ticks := now - b.Time
	if l.tick != 1 {
		ticks /= l.tick
	}
	b.Level = max(0, b.Level-saturatedProduct(ticks, l.rate))
	b.Time = now
}

// adopt makes b, which others may have written, one of l. now is at a tick.
func (l *Limit) adopt(b *Bucket, now int64) {
	if !b.believed(now) {
		*b = Bucket{Time: now, Unit: l.unit}
		return
	}
	level := b.Level
	if b.Unit != l.unit {
		level = convert(level, b.Unit, l.unit)
	}
	level = owed(level, saturatedProduct(b.Prev, l.unit), l.most)
	*b = Bucket{Time: b.Time, Level: level, Unit: l.unit}
	if early := b.Time % l.tick; early != 0 {
		b.Time += l.tick - early // written by a Limit with a finer tick
	}
}

// bucketWait is how long n units, which are no more than AtOnce, have to wait.
func (l *Limit) bucketWait(b *Bucket, n, now int64) time.Duration {
	over := b.Level - (l.capacity - n*l.unit)
	if over <= 0 {
		return 0
	}
	return l.until(b, over, now)
}

func (l *Limit) tryBucket(b *Bucket, n int64) (fits bool) {
	if n > l.atOnce || b.Level > l.capacity-n*l.unit {
		return false
	}
	b.Level += n * l.unit
	return true
}

// chargeBucket charges beyond Burst, as far as anything can be owed.
func (l *Limit) chargeBucket(b *Bucket, n int64) (fits bool) {
	if n*l.unit > l.most-b.Level {
		return false
	}
	b.Level += n * l.unit
	return true
}

func (l *Limit) settleBucket(b *Bucket, n int64) {
	if n < 0 {
		b.Level = max(0, b.Level-saturatedProduct(given(n), l.unit))
	} else {
		b.Level = owed(b.Level, saturatedProduct(n, l.unit), l.most)
	}
}

// describeBucket describes one that owes level, so many µs from now.
func (l *Limit) describeBucket(d *Decision, level, ahead int64) {
	free := l.capacity - level
	d.Remaining = l.perUnit.floor(max(0, free))
	if level > 0 {
		d.NextAfter = l.payable((d.Remaining+1)*l.unit-free, ahead)
		d.ResetAfter = l.payable(level, ahead)
	}
}

// until returns how long after now so many parts of what b owes are paid back.
func (l *Limit) until(b *Bucket, parts, now int64) time.Duration {
	return l.payable(parts, b.Time-now)
}

// payable returns how long it takes until so many parts are paid back that are owed
// so many µs from now.
func (l *Limit) payable(parts, ahead int64) time.Duration {
	return time.Duration(ahead+l.ticks(parts)*l.tick) * time.Microsecond
}

// ticks returns how many ticks it takes to pay so many parts back.
func (l *Limit) ticks(parts int64) int64 { return l.perRate.floor(parts + l.rate - 1) }
