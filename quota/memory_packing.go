package quota

// A packing is how Memory keeps what a Limit counts.
type packing struct {
	scale
	number       uint64 // of the scale; noScale if what is counted does not fit
	name, dryRun hash   // what the Name adds to the hash of a Key
}

// packing returns that of l.
func (l *Limit) packing() (p packing) {
	p.name, p.dryRun = hash(0).counted(l.Name(), false), hash(0).counted(l.Name(), true)
	switch {
	case l.algorithm.drains():
		if s := (scale{tick: l.tick, unit: l.unit, rate: l.rate}); s.fits(l.most) {
			p.scale, p.number = s, scales.of(s)
		}
	case l.algorithm == FixedWindow && l.atOnce <= maxExact:
		s := scale{tick: l.windowTick(), unit: 1, rate: 2*l.atOnce + 1, span: l.longest()}
		if s.fits(0) {
			p.scale, p.number = s, scales.of(s)
		}
	}
	return p
}

// windowTick is the coarsest tick at which all windows begin.
func (l *Limit) windowTick() int64 {
	tick := int64(maxTick)
	for l.window%tick != 0 {
		tick /= 10
	}
	return tick
}

// longest is how long, in µs, a window can last: of a Calendar, one in which clocks
// are set back by a day.
func (l *Limit) longest() int64 {
	const hour = 3_600_000_000
	switch l.policy.Calendar {
	case Day:
		return (1*24 + 25) * hour
	case Week:
		return (7*24 + 25) * hour
	case Month:
		return (31*24 + 25) * hour
	default:
		return l.window
	}
}

// pack returns the state that b, which is l's at now, has in a table of this origin,
// if it fits. What a bucket owes at a time to come is not known at now.
func (l *Limit) pack(b *Bucket, origin, now int64) (state int64, ok bool) {
	p := &l.packed
	since := b.Time - p.base(origin)
	switch {
	case p.number == noScale, since < 0, since > maxAge+p.span:
		return 0, false
	case p.span > 0 && b.Level >= p.rate, p.span == 0 && b.Time > now:
		return 0, false
	}
	return p.ticks(since)*p.rate + b.Level, true
}

// paid returns how much is paid at now in a table of this origin, and the Time of a
// Bucket that owes anything more.
func (l *Limit) paid(origin, now int64) (paid, at int64) {
	p := &l.packed
	if p.span > 0 {
		at, _ = l.windowAt(now)
	} else {
		at = now - now%p.tick
	}
	return p.ticks(at-p.base(origin)) * p.rate, at
}

// ahead reports whether so much is owed in a window that it is one to come.
func (p *packing) ahead(level int64) bool { return p.span > 0 && level >= p.rate }
