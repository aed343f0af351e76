package quota

// FixedWindow counts Quota units in each window, and begins anew with the next.
// Windows are aligned to the Unix epoch, so a Window of a minute begins with the
// minute; or they are days, weeks or months of a Calendar. Its state is the start
// of a window and a count.
//
// It admits at most Quota units in each aligned window, but up to 2·Quota in any
// other time as long as a Window: Quota at the end of one and Quota at the
// beginning of the next, a microsecond later.
const FixedWindow Algorithm = 2

// drainFixed is Drain: what was charged in a window that is over is gone. A window
// to come, in which units are reserved, stays.
func (l *Limit) drainFixed(b Bucket, now int64) Bucket {
	begin, end := l.windowAt(now)
	if !believed(b, now) || b.Time < begin {
		return Bucket{Time: begin, Unit: 1}
	}
	if b.Time >= end {
		begin, _ = l.windowAt(b.Time)
	}
	return Bucket{Time: begin, Level: l.counted(b, begin), Unit: 1}
}

// counted is what b counts in the window that begins at begin, in which b.Time is.
// If its own window began later than that one, so may the one before it have.
func (l *Limit) counted(b Bucket, begin int64) int64 {
	level := l.units(b)
	if begin < b.Time {
		level = indebted(level, b.Prev, l.most)
	}
	return level
}

// fixedMoment is when n units fit at the earliest: in b's window, or the next.
func (l *Limit) fixedMoment(b Bucket, n int64) int64 {
	if n <= l.atOnce-b.Level {
		return b.Time
	}
	_, end := l.windowAt(b.Time)
	return end
}

func (l *Limit) tryFixed(b Bucket, n, now int64) (after Bucket, fits bool) {
	if b.Time > now || n > l.atOnce-b.Level {
		return b, false
	}
	b.Level += n
	return b, true
}

// settleFixed gives back only what was charged in the window that b counts: what
// was not used in another leaves no room in this one.
func (l *Limit) settleFixed(b Bucket, n, at int64) Bucket {
	if n >= 0 {
		b.Level = indebted(b.Level, n, l.most)
	} else if begin, _ := l.windowAt(at); begin == b.Time {
		b.Level = max(0, b.Level-refund(n))
	}
	return b
}

// fixedRemaining is what is left of b's window, once it has begun.
func (l *Limit) fixedRemaining(b Bucket, now int64) int64 {
	if b.Time > now {
		return 0
	}
	return max(0, l.atOnce-b.Level)
}

// fixedWhole is the end of b's window, or if it owes nothing its beginning: before
// that it does not begin.
func (l *Limit) fixedWhole(b Bucket) int64 {
	if b.Level == 0 {
		return b.Time
	}
	_, end := l.windowAt(b.Time)
	return end
}
