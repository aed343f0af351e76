package quota

// SlidingWindow counts two windows, aligned to the Unix epoch. When e of the present one
// has elapsed, n units fit if
//
//	Level + Prev·(Window - e)/Window + n ≤ Quota
//
// Level was charged in this window, and Prev in the previous one, where it is assumed to
// be evenly spread. The arithmetic uses integers, with e rounded down to a tick, so waits
// are exact. Its state is the start of a window and two counts.
//
// It admits at most 2·Quota - 1 units in any time as long as a Window: if everything in
// one window came at its very end, units come back from the start of the next. If the
// previous window was evenly spread, it admits Quota.
const SlidingWindow Algorithm = 3

// drainSliding moves the counts when windows end.
func (l *Limit) drainSliding(b *Bucket, now int64) {
	start, _ := l.windowAt(now)
	if !b.plausible() {
		*b = Bucket{Time: start, Unit: 1}
		return
	}
	l.setBackWindow(b, now)
	was, _ := l.windowAt(b.Time)
	level, prev := l.counted(b, was), int64(0)
	if was == b.Time {
		prev = min(l.most, b.Prev)
	}
	switch {
	case start <= was:
		*b = Bucket{Time: was, Level: level, Unit: 1, Prev: prev}
	case start == was+l.window:
		*b = Bucket{Time: start, Unit: 1, Prev: level}
	default:
		*b = Bucket{Time: start, Unit: 1}
	}
	b.setAhead(now)
}

// slidingMoment returns the earliest time at which n units fit, at most Quota: when the
// weight of the previous window leaves room. That may be in the next window, with the
// present one as the previous.
func (l *Limit) slidingMoment(b *Bucket, n int64) int64 {
	start, prev, free := b.Time, b.Prev, l.atOnce-b.Level-n
	if free < 0 {
		start, prev, free = b.Time+l.window, b.Level, l.atOnce-n
	}
	if prev == 0 {
		return start
	}
	window := l.window / l.tick
	return start + max(0, window-free*window/prev)*l.tick
}

// fitsSliding reports whether n units fit at now.
func (l *Limit) fitsSliding(b *Bucket, n, now int64) bool {
	free := l.atOnce - b.Level
	return b.Time <= now && n <= free && b.Prev*l.left(b, now) <= (free-n)*(l.window/l.tick)
}

// left returns how many ticks of b's window, which has started, are left at now.
func (l *Limit) left(b *Bucket, now int64) int64 { return l.window/l.tick - (now-b.Time)/l.tick }

// weightOfPrev returns the weight of the previous window at now, rounded up to units. b's
// window has started.
func (l *Limit) weightOfPrev(b *Bucket, now int64) int64 {
	window := l.window / l.tick
	return (b.Prev*l.left(b, now) + window - 1) / window
}

// settleSliding refunds only what was charged in the two windows of b.
func (l *Limit) settleSliding(b *Bucket, n, at int64) {
	start, end := l.windowAt(at)
	switch {
	case n >= 0:
		b.Level = addCapped(b.Level, n, l.most)
	case start == b.Time:
		b.Level = max(0, b.Level-refundOf(n))
	case end == b.Time:
		b.Prev = max(0, b.Prev-refundOf(n))
	}
}

// slidingWhole returns when b owes nothing: the end of the next window if this one has a
// count, the end of this one if only the previous has.
func (l *Limit) slidingWhole(b *Bucket) int64 {
	switch {
	case b.Level > 0:
		return b.Time + 2*l.window
	case b.Prev > 0:
		return b.Time + l.window
	default:
		return b.Time
	}
}
