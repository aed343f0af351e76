package quotatest

import (
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A model counts as package quota documents, with exact fractions and as plainly as possible.
type model struct {
	counts map[place]map[string]count // by Shape
	ids    map[place]int64            // until when an ID is remembered
}

// A place is that of the counts of one Key and Name or, with an id, that of an ID.
type place struct {
	key, name string
	dryRun    bool
	id        string
}

func newModel() *model {
	return &model{counts: make(map[place]map[string]count), ids: make(map[place]int64)}
}

func placeOf(c *quota.Charge) place { return place{c.Key, c.Limit.Name(), c.DryRun, ""} }

func idOf(c *quota.Charge) place { return place{c.Key, c.Limit.Name(), c.DryRun, c.ID} }

// read returns the count of l at now. If there is none, it begins with what the one of another
// Shape says that owes most.
func (m *model) read(p place, l *quota.Limit, now int64) count {
	if own, ok := m.counts[p][l.Shape()]; ok && !own.over(now) {
		return own.as(l, now)
	}
	most := nothing(l).as(l, now)
	for _, other := range m.counts[p] {
		if other.owes(now) {
			if other = other.as(other.by, now).as(l, now); other.compare(most) > 0 {
				most = other
			}
		}
	}
	return most
}

// write stores c as the count of its Limit, after n units, and charges the counts of other Shapes
// too. If none owed anything, they are forgotten.
func (m *model) write(p place, c count, n, at, now int64) {
	owed := false
	for shape, other := range m.counts[p] {
		if shape == c.by.Shape() {
			other = other.as(c.by, now)
		}
		owed = owed || other.owes(now)
	}
	if !owed {
		m.counts[p] = make(map[string]count)
	}
	for shape, other := range m.counts[p] {
		if shape == c.by.Shape() || other.over(now) {
			continue
		}
		other, units := other.as(other.by, now), n
		switch spare := atOnce(c.by) - ceil(other.owed); {
		case n > 0:
			units = min(n, max(0, spare))
		case spare < 0:
			units = 0 // what is given back was not charged there
		}
		m.counts[p][shape] = other.settled(units, at, now)
	}
	m.counts[p][c.by.Shape()] = c
}

// remembers reports whether the charge was made before, by its ID.
func (m *model) remembers(c *quota.Charge, now int64) bool { return c.ID != "" && m.ids[idOf(c)] > now }

func (m *model) remember(c *quota.Charge, now int64) {
	switch p := c.Limit.Policy(); {
	case c.ID == "":
	case p.Calendar != 0:
		m.ids[idOf(c)] = endOf(c.Limit, now)
	default:
		m.ids[idOf(c)] = now + max(1, micros(p.Window))
	}
}

// An outcome is what becomes of one charge.
type outcome struct {
	stored, met, after count // before the call; with the charges before it; with it, if it fits
	wait               time.Duration
	fits, repeated     bool
}

// decide returns the outcomes of a Take or, if reserving, of a Reserve within longest. It changes
// nothing.
func (m *model) decide(charges []quota.Charge, reserving bool, longest time.Duration, now int64) (
	all []outcome, allowed bool,
) {
	allowed = true
	latest, made := make(map[place]count), make(map[place]bool)
	for i := range charges {
		c, p := &charges[i], placeOf(&charges[i])
		o := outcome{stored: m.read(p, c.Limit, now)}
		o.met = o.stored
		if before, ok := latest[p]; ok {
			o.met = before.as(c.Limit, now)
		}
		o.after = o.met
		if o.repeated = m.remembers(c, now) || c.ID != "" && made[idOf(c)]; o.repeated {
			o.fits = true
		} else {
			o.try(c, reserving, longest, now)
		}
		latest[p], made[idOf(c)] = o.after, o.fits
		allowed = allowed && (o.fits || c.DryRun)
		all = append(all, o)
	}
	return all, allowed
}

// try sets after, wait and fits.
func (o *outcome) try(c *quota.Charge, reserving bool, longest time.Duration, now int64) {
	l, n := c.Limit, c.Units()
	if n > atOnce(l) {
		o.wait = quota.Forever
		return
	}
	at := o.met.first(n, now)
	if reserving && l.Policy().Algorithm == quota.LeakyBucket {
		at = o.met.whole(now)
	}
	o.wait = time.Duration(at-now) * µs
	switch {
	case at > now && (!reserving || o.wait > longest), at > now+micros(24*h) && !drains(l):
		return
	case drains(l):
		at = now // the debt begins at once
	}
	after := o.met.charged(n, at)
	if o.fits = after.owed.Cmp(most(l)) <= 0 && len(after.log) <= 2000; o.fits {
		o.after = after.seen(now)
	}
}

// take returns the Decisions, of a Peek unless taking.
func (m *model) take(charges []quota.Charge, taking bool, now int64) (ds []quota.Decision) {
	all, allowed := m.decide(charges, false, 0, now)
	for i, o := range all {
		c, left := &charges[i], o.stored
		if taking && allowed && o.fits {
			left = o.after
			m.make(c, o, now)
		}
		d := describe(left, now)
		d.Allowed, d.At = o.fits, time.UnixMicro(now).UTC()
		if o.fits && !o.repeated && c.Limit.Policy().Algorithm == quota.LeakyBucket {
			d.Delay = time.Duration(o.met.whole(now)-now) * µs
		}
		if d.Never = !o.fits && asked(charges[:i+1]).Cmp(units(atOnce(c.Limit))) > 0; !o.fits && !d.Never {
			d.RetryAfter = o.wait
		}
		ds = append(ds, d)
	}
	return ds
}

func (m *model) reserve(charges []quota.Charge, longest time.Duration, now int64) (wait time.Duration, ok bool) {
	all, ok := m.decide(charges, true, longest, now)
	for i, o := range all {
		if !charges[i].DryRun {
			wait = max(wait, o.wait)
		}
		if ok && o.fits {
			m.make(&charges[i], o, now)
		}
	}
	return wait, ok
}

// make makes a charge that fits, unless it was made before.
func (m *model) make(c *quota.Charge, o outcome, now int64) {
	if !o.repeated {
		m.write(placeOf(c), o.after, c.Units(), 0, now)
		m.remember(c, now)
	}
}

// settle returns the first charge that is not made in full, if any.
func (m *model) settle(charges []quota.Charge, now int64) (first *quota.DebtError) {
	for i := range charges {
		c, at := &charges[i], int64(0)
		if c.N == 0 || m.remembers(c, now) {
			continue
		}
		m.remember(c, now)
		if !c.At.IsZero() {
			at = c.At.UnixMicro()
		}
		met := m.read(placeOf(c), c.Limit, now)
		after := met.settled(c.N, at, now)
		if c.N > 0 && drains(c.Limit) {
			after.owed = lowest(after.owed, highest(met.owed, maxDebt(c.Limit)))
			if cut := floor(sub(units(c.N), sub(after.owed, met.owed))); cut > 0 && first == nil {
				first = &quota.DebtError{Index: i, Limit: c.Limit.Name(), Units: c.N, Cut: cut}
			}
		}
		m.write(placeOf(c), after, c.N, at, now)
	}
	return first
}

// reset forgets a key.
func (m *model) reset(key string) {
	maps.DeleteFunc(m.counts, func(p place, _ map[string]count) bool { return p.key == key })
	maps.DeleteFunc(m.ids, func(p place, _ int64) bool { return p.key == key })
}

// mayForget reports whether a Store may have forgotten at now what it would need at then, earlier.
func (m *model) mayForget(now, then int64) bool {
	forgets := false
	for _, counts := range m.counts {
		for _, c := range counts {
			forgets = forgets || c.owes(then) && !c.owes(now)
		}
	}
	for _, until := range m.ids {
		forgets = forgets || then < until && until <= now
	}
	return forgets
}

// asked returns how many units charges ask of the count of the last one. Charges with the same ID
// count once.
func asked(charges []quota.Charge) *big.Rat {
	last, sum, counted := &charges[len(charges)-1], zero, make(map[string]bool)
	for i := range slices.Backward(charges) {
		if c := &charges[i]; placeOf(c) == placeOf(last) && !counted[c.ID] {
			sum = add(sum, units(c.Units()))
			counted[c.ID] = c.ID != ""
		}
	}
	return sum
}
