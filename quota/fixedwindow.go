package quota

// FixedWindow counts Quota units in each window and starts at 0 in the next. Windows are
// aligned to the Unix epoch, so a Window of a minute starts with the minute; or they are
// days, weeks or months of a Calendar. Its state is the start of a window and a count.
//
// It admits at most Quota units in each aligned window, but up to 2·Quota in any other
// time as long as a Window: Quota at the end of one, and Quota at the start of the next,
// a microsecond later.
const FixedWindow Algorithm = 2

// drainFixed forgets a window that is over. A future window with reservations stays.
func (l *Limit) drainFixed(b *Bucket, now int64) {
	start, end := l.windowAt(now)
	if b.plausible() {
		l.setBackWindow(b, now)
	}
	if !b.plausible() || b.Time < start {
		*b = Bucket{Time: start, Unit: 1}
		return
	}
	if b.Time >= end {
		start, _ = l.windowAt(b.Time)
	}
	*b = Bucket{Time: start, Level: l.counted(b, start), Unit: 1}
	b.setAhead(now)
}

// setBackWindow moves b to the window that it is in if the clock was set back.
func (l *Limit) setBackWindow(b *Bucket, now int64) {
	if t := b.setBack(now); t < b.Time {
		b.Time, _ = l.windowAt(t)
	}
}

// counted returns the count of the window that starts at start and contains b.Time. If
// b's own window started later, its previous one may be part of this one.
func (l *Limit) counted(b *Bucket, start int64) int64 {
	units := convert(b.Level, b.Unit, 1)
	if start < b.Time {
		return addCapped(units, b.Prev, l.most)
	}
	return min(l.most, units)
}

// fixedMoment returns the earliest time at which n units fit: in b's window, or the next.
func (l *Limit) fixedMoment(b *Bucket, n int64) int64 {
	if n <= l.atOnce-b.Level {
		return b.Time
	}
	_, end := l.windowAt(b.Time)
	return end
}

// settleFixed refunds only what was charged in b's window: a refund for another one
// leaves no room in this one.
func (l *Limit) settleFixed(b *Bucket, n, at int64) {
	if n >= 0 {
		b.Level = addCapped(b.Level, n, l.most)
	} else if start, _ := l.windowAt(at); start == b.Time {
		b.Level = max(0, b.Level-refundOf(n))
	}
}

// fixedWhole returns the end of b's window. If b owes nothing it returns the start,
// because a future window is full until then.
func (l *Limit) fixedWhole(b *Bucket) int64 {
	if b.Level == 0 {
		return b.Time
	}
	_, end := l.windowAt(b.Time)
	return end
}
