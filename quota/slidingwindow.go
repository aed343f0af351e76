package quota

// SlidingWindow weighs two windows, aligned to the Unix epoch: with e of the
// present one gone, n units fit if
//
//	Level + Prev·(Window - e)/Window + n ≤ Quota
//
// where Level was charged in this window and Prev in the one before, of which it
// assumes that they were spread evenly. The comparison is made in integers, with e
// rounded down to the tick. Its state is the start of a window and two counts.
//
// What it admits in any time as long as a Window depends on how even that was: it
// is Quota, if so, and less than 2·Quota at worst, which is the same Quota as a
// FixedWindow's before the boundary, and one unit less than Quota, growing over the
// next Window, after it. The worst case is Quota units at the very end of one
// window: then Quota·e/Window fit in the next, by e, all of which are less than a
// Window after the first.
const SlidingWindow Algorithm = 3

// drainSliding is Drain: the present window becomes the one before.
func (l *Limit) drainSliding(b Bucket, now int64) Bucket {
	if !believed(b, now) {
		begin, _ := l.windowAt(now)
		return Bucket{Time: begin, Unit: 1}
	}
	begin, _ := l.windowAt(b.Time)
	from := Bucket{Time: begin, Level: l.counted(b, begin), Unit: 1}
	if begin == b.Time {
		from.Prev = min(l.most, b.Prev)
	}
	return l.slide(from, now)
}

// slide returns b as it is in the window of now, if that is a later one.
func (l *Limit) slide(b Bucket, now int64) Bucket {
	switch begin, _ := l.windowAt(now); {
	case begin <= b.Time:
		return b
	case begin-b.Time == l.window:
		return Bucket{Time: begin, Prev: b.Level, Unit: 1}
	default:
		return Bucket{Time: begin, Unit: 1}
	}
}

// slidingMoment is when n units, no more than Quota, fit at the earliest: when so
// little of the window before is left that what it weighs fits beside them. That
// may be in the next window, where the present one is the one before.
func (l *Limit) slidingMoment(b Bucket, n int64) int64 {
	begin, prev, room := b.Time, b.Prev, l.atOnce-b.Level-n
	if room < 0 {
		begin, prev, room = b.Time+l.window, b.Level, l.atOnce-n
	}
	if prev == 0 {
		return begin
	}
	ticks := l.window / l.tick
	return begin + max(0, ticks-room*ticks/prev)*l.tick
}

func (l *Limit) trySliding(b Bucket, n, now int64) (after Bucket, fits bool) {
	if b.Time > now || n > l.atOnce-b.Level {
		return b, false
	}
	ticks := l.window / l.tick
	left := ticks - (now-b.Time)/l.tick
	if b.Prev*left > (l.atOnce-b.Level-n)*ticks {
		return b, false
	}
	b.Level += n
	return b, true
}

// settleSliding gives back only what was charged in the two windows of b.
func (l *Limit) settleSliding(b Bucket, n, at int64) Bucket {
	begin, end := l.windowAt(at)
	switch {
	case n >= 0:
		b.Level = indebted(b.Level, n, l.most)
	case begin == b.Time:
		b.Level = max(0, b.Level-refund(n))
	case end == b.Time:
		b.Prev = max(0, b.Prev-refund(n))
	}
	return b
}

// slidingRemaining is how many units fit at now, once b's window has begun.
func (l *Limit) slidingRemaining(b Bucket, now int64) int64 {
	if b.Time > now {
		return 0
	}
	ticks := l.window / l.tick
	left := ticks - (now-b.Time)/l.tick
	weighed := (b.Prev*left + ticks - 1) / ticks
	return max(0, l.atOnce-b.Level-weighed)
}

// slidingWhole is the end of the next window, in which what was charged in this
// one still weighs; or of this one.
func (l *Limit) slidingWhole(b Bucket) int64 {
	switch {
	case b.Level > 0:
		return b.Time + 2*l.window
	case b.Prev > 0:
		return b.Time + l.window
	default:
		return b.Time
	}
}
