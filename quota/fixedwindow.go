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

// drainFixed forgets what was charged in a window that is over. A window to come,
// in which units are reserved, stays.
func (l *Limit) drainFixed(b *Bucket, now int64) {
	begin, end := l.windowAt(now)
	if !b.believed(now) || b.Time < begin {
		*b = Bucket{Time: begin, Unit: 1}
		return
	}
	if b.Time >= end {
		begin, _ = l.windowAt(b.Time)
	}
	*b = Bucket{Time: begin, Level: l.counted(b, begin), Unit: 1}
}

// counted is what b counts in the window that begins at begin, in which b.Time is.
// If b's own window began later, the one before it may lie in that one, too.
func (l *Limit) counted(b *Bucket, begin int64) int64 {
	units := convert(b.Level, b.Unit, 1)
	if begin < b.Time {
		return owed(units, b.Prev, l.most)
	}
	return min(l.most, units)
}

// fixedMoment is when n units fit at the earliest: in b's window, or the next.
func (l *Limit) fixedMoment(b *Bucket, n int64) int64 {
	if n <= l.atOnce-b.Level {
		return b.Time
	}
	_, end := l.windowAt(b.Time)
	return end
}

// settleFixed gives back only what was charged in the window that b counts: what
// was not used in another leaves no room in this one.
func (l *Limit) settleFixed(b *Bucket, n, at int64) {
	if n >= 0 {
		b.Level = owed(b.Level, n, l.most)
	} else if begin, _ := l.windowAt(at); begin == b.Time {
		b.Level = max(0, b.Level-given(n))
	}
}

// fixedWhole is the end of b's window, or if it owes nothing its beginning, up to
// which it is full.
func (l *Limit) fixedWhole(b *Bucket) int64 {
	if b.Level == 0 {
		return b.Time
	}
	_, end := l.windowAt(b.Time)
	return end
}
