package quota

import "time"

// quick is Take of one charge without a lock, of what is kept in a word and is known
// already. It reports false, having done nothing, if it cannot say.
//
// Each word is read before the clock is, so that it was not written later than now.
// If others have written it meanwhile, it is read again, and so is the clock.
func (m *Memory) quick(dst []Decision, c *Charge) ([]Decision, bool) {
	g, l, n := m.books.Load(), c.Limit, c.Units()
	if g == nil || g.clock != nil || l == nil || l.packed.number == noScale || uint64(n) > uint64(l.atOnce) || c.ID != "" {
		return dst, false
	}
	h, cost := c.hash(), n*l.unit
	t, tag, check := g.shardOf(h).table.Load(), h.tag(l.packed.number), h.check()
	for failed := 0; ; failed++ {
		s, word := t.read(tag, check)
		if s == nil || word&held != 0 {
			return dst, false
		}
		now := g.monotonic()
		if uint64(now-t.origin) > maxAge {
			return dst, false
		}
		paid, at := (now-t.origin)*l.packed.rate, now
		if l.packed.tick != 1 || l.packed.span > 0 { // as hardly ever
			paid, at = l.paid(t.origin, now)
		}
		level, verdict := s.take(word, paid, cost, l.capacity)
		if verdict == unsure {
			g.stepAside(failed)
			continue
		}
		if l.packed.ahead(level) {
			return dst, false
		}
		dst = append(dst, Decision{})
		l.judge(&dst[len(dst)-1], verdict == allowed, level, cost, at, now)
		return dst, true
	}
}

// A verdict is what becomes of a charge.
type verdict int

const (
	denied verdict = iota
	allowed
	unsure // somebody else wrote the slot after its word was read
)

// take charges cost to s, of which a word was read before so much was paid, unless
// more than capacity is owed then. It returns what is owed without it.
func (s *slot) take(read uint64, paid, cost, capacity int64) (level int64, v verdict) {
	state := max(stateOf(read), paid)
	level = state - paid
	switch {
	case level+cost > capacity:
		if s.word.Load() == read {
			return level, denied
		}
	case s.word.CompareAndSwap(read, uint64(state+cost)<<stateShift|read&marks):
		return level, allowed
	}
	return 0, unsure
}

// stepAside lets those write who were faster, for longer the more often they were.
// Whoever has the cache line makes several decisions in the time that it takes to
// move: who asks for it back at once has all of them wait for it, and loses it again.
func (g *ledger) stepAside(failed int) {
	for range 32 << min(failed, 2) { // about a microsecond, to begin with
		g.monotonic()
	}
}

// judge makes d, which is zero, the Decision on a charge of cost by l, which is
// counted in a scale: level is what is owed without it, as of at.
func (l *Limit) judge(d *Decision, fits bool, level, cost, at, now int64) {
	d.Limit, d.Allowed, d.At = l.quota, fits, time.UnixMicro(now)
	switch {
	case l.packed.span > 0:
		l.judgeWindow(d, level, cost, at, now)
		return
	case !fits:
		d.RetryAfter = l.payable(level+cost-l.capacity, at-now)
		cost = 0
	case l.algorithm == LeakyBucket && level > 0:
		d.Delay = l.payable(level, at-now)
	}
	l.describeBucket(d, level+cost, at-now)
}

// judgeWindow is judge for a FixedWindow that began at at.
func (l *Limit) judgeWindow(d *Decision, level, cost, at, now int64) {
	b := Bucket{Time: at, Level: level, Unit: 1}
	if d.Allowed {
		b.Level += cost
	} else {
		d.RetryAfter = l.wait(&b, cost, now)
	}
	l.describe(d, &b, now)
}
