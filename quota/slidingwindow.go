package quota

// SlidingWindow weighs two windows, aligned to the Unix epoch: with e of the
// present one gone, n units fit if
//
//	Level + Prev·(Window - e)/Window + n ≤ Quota
//
// where Level was charged in this window and Prev in the one before, of which it
// assumes that they were spread evenly. That is decided in integers, with e rounded
// down to a tick, and so is when it will be. Its state is the start of a window and
// two counts.
//
// It admits at most 2·Quota - 1 units in any time as long as a Window: if all of
// one window came at its very end, as much as has gone of the next is free again.
// If the one before was as even as is assumed, it is Quota.
const SlidingWindow Algorithm = 3

// drainSliding makes the present window the one before when it is over, and
// forgets that one.
func (l *Limit) drainSliding(b *Bucket, now int64) {
	begin, _ := l.windowAt(now)
	if !b.believed(now) {
		*b = Bucket{Time: begin, Unit: 1}
		return
	}
	was, _ := l.windowAt(b.Time)
	level, prev := l.counted(b, was), int64(0)
	if was == b.Time {
		prev = min(l.most, b.Prev)
	}
	switch {
	case begin <= was:
		*b = Bucket{Time: was, Level: level, Unit: 1, Prev: prev}
	case begin == was+l.window:
		*b = Bucket{Time: begin, Unit: 1, Prev: level}
	default:
		*b = Bucket{Time: begin, Unit: 1}
	}
}

// slidingMoment is when n units, no more than Quota, fit at the earliest: when so
// little of the window before is left that what it weighs fits beside them. That
// may be in the next window, where the present one is the one before.
func (l *Limit) slidingMoment(b *Bucket, n int64) int64 {
	begin, prev, room := b.Time, b.Prev, l.atOnce-b.Level-n
	if room < 0 {
		begin, prev, room = b.Time+l.window, b.Level, l.atOnce-n
	}
	if prev == 0 {
		return begin
	}
	window := l.window / l.tick
	return begin + max(0, window-room*window/prev)*l.tick
}

// fitsSliding reports whether n units fit at now.
func (l *Limit) fitsSliding(b *Bucket, n, now int64) bool {
	room := l.atOnce - b.Level
	return b.Time <= now && n <= room && b.Prev*l.left(b, now) <= (room-n)*(l.window/l.tick)
}

// left is how many ticks are left at now of b's window, which has begun.
func (l *Limit) left(b *Bucket, now int64) int64 { return l.window/l.tick - (now-b.Time)/l.tick }

// weighed is what the window before counts at now, rounded up to units. b's window has
// begun.
func (l *Limit) weighed(b *Bucket, now int64) int64 {
	window := l.window / l.tick
	return (b.Prev*l.left(b, now) + window - 1) / window
}

// settleSliding gives back only what was charged in the two windows of b.
func (l *Limit) settleSliding(b *Bucket, n, at int64) {
	begin, end := l.windowAt(at)
	switch {
	case n >= 0:
		b.Level = owed(b.Level, n, l.most)
	case begin == b.Time:
		b.Level = max(0, b.Level-given(n))
	case end == b.Time:
		b.Prev = max(0, b.Prev-given(n))
	}
}

// slidingWhole is the end of the next window, in which what was charged in this
// one still weighs; or of this one.
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
