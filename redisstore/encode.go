package redisstore

import (
	"time"

	"github.com/heedhttp/heed/quota"
)

// What a charge is, as run.lua has it.
const (
	flagMore = 1 << iota
	flagDry
	flagLong
	flagID
	flagNegative
	flagSettled
	flagReserved
	flagAt

	flagRevoked = flagReserved // of what is settled
)

// The kinds of limits that plan.lua knows are the Algorithms, and:
const calendarKind = 5

// encode tells Redis p. What depends on a Calendar is for a moment not far from now,
// in µs since the Unix epoch: see answer.
func (p *plan) encode(now int64) {
	b := appendNumber(p.args[:0], int64(len(p.subjects)), 2)
	b = appendNumber(b, int64(len(p.limits)), 2)
	for _, l := range p.limits {
		b = p.appendLimit(b, l, now)
	}
	b = p.appendCells(b)
	b = p.appendIDs(b)
	targets := p.targets
	for _, e := range p.errands {
		if !e.peek {
			b = p.appendCharges(b, e, targets)
		}
		targets = targets[len(e.charges):]
	}
	p.args = b
}

func (p *plan) appendLimit(b []byte, l *quota.Limit, now int64) []byte {
	policy := l.Policy()
	kind, drains := byte(policy.Algorithm), l.Rate()
	if policy.Calendar != 0 {
		kind = calendarKind
	} else if drains == 0 {
		drains = policy.Window.Microseconds()
	}
	b = appendNumber(append(b, kind), l.Tick().Microseconds(), 3)
	b = appendNumber(b, drains, 7)
	b = appendNumber(b, l.Capacity(), 7)
	b = appendNumber(b, l.Most(), 7)
	width := widthOf(l.Unit())
	b = appendNumber(append(b, byte(width)), int64(len(policy.Name)), 2)
	b = append(appendNumber(b, l.Unit(), width), policy.Name...)
	if kind == calendarKind {
		for _, start := range p.startsOf(l, now) {
			b = appendNumber(b, start, 7)
		}
	}
	return b
}

// appendCells lists the cells, and numbers them.
func (p *plan) appendCells(b []byte) []byte {
	number := 0
	for s := range p.subjects {
		count := len(b)
		b = append(b, 0, 0)
		first := number
		for at := p.subjects[s].cells; at >= 0; at = p.cells[at].next {
			c := &p.cells[at]
			number++
			c.number = number
			b = appendNumber(b, int64(c.limit+1), 2)
			b = append(b, bit(c.dryRun))
		}
		b[count], b[count+1] = byte((number-first)>>8), byte(number-first)
	}
	return b
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func (p *plan) appendIDs(b []byte) []byte {
	b = appendNumber(b, int64(len(p.ids)), 2)
	for i := range p.ids {
		id := &p.ids[i]
		c := &p.cells[id.cell]
		b = appendNumber(b, int64(id.set+1), 2)
		size := len(b)
		b = append(b, 0, 0)
		b = append(b, p.limits[c.limit].Name()...)
		b = append(b, '\t', bit(c.dryRun)+'0')
		b = append(b, id.id...)
		length := len(b) - size - 2
		b[size], b[size+1] = byte(length>>8), byte(length)
	}
	return b
}

// lasts is for how long an ID is remembered that is charged by l, in µs, or 0 for
// until the Calendar's window ends.
func lasts(l *quota.Limit) int64 {
	policy := l.Policy()
	if policy.Calendar != 0 {
		return 0
	}
	return max(1, policy.Window.Microseconds())
}

func (p *plan) appendCharges(b []byte, e *errand, targets []target) []byte {
	for i := range e.charges {
		at := len(b)
		b = p.appendCharge(b, e, &e.charges[i], targets[i])
		if e.verb == toRevoke {
			b = appendText(appendText(b, e.revoked[i].left), e.revoked[i].before)
		}
		if i < len(e.charges)-1 {
			b[at] |= flagMore
		}
	}
	return b
}

func (p *plan) appendCharge(b []byte, e *errand, c *quota.Charge, t target) []byte {
	at, n := len(b), c.Units()
	b = append(b, e.verb.flags()|bit(c.DryRun)*flagDry)
	b = appendNumber(b, int64(p.cells[t.cell].number), 2)
	b = appendNumber(b, int64(t.limit+1), 2)
	if n < 0 {
		b[at] |= flagNegative
		n = -max(n, -exact)
	}
	if n < 256 {
		b = append(b, byte(n))
	} else {
		b[at] |= flagLong
		b = appendNumber(append(b, 0), min(n, exact+1), 7) // which is more than anything
	}
	if t.id >= 0 {
		b[at] |= flagID
		b = appendNumber(b, int64(t.id+1), 2)
		b = appendNumber(b, lasts(c.Limit), 7)
	}
	if e.verb == toReserve {
		b = appendNumber(b, microseconds(e.max), 7)
	}
	if made := chargedAt(c); e.verb.settles() && made > 0 {
		b[at] |= flagAt
		b = appendNumber(b, min(made, exact), 7)
	}
	return b
}

// chargedAt is c.At in µs since the Unix epoch, or 0 if it is not said.
func chargedAt(c *quota.Charge) int64 {
	if c.At.IsZero() {
		return 0
	}
	return max(1, c.At.UnixMicro())
}

func (v verb) flags() byte {
	switch v {
	case toReserve:
		return flagReserved
	case toSettle:
		return flagSettled
	case toRevoke:
		return flagSettled | flagRevoked
	}
	return 0
}

// microseconds is d rounded down, and not negative.
func microseconds(d time.Duration) int64 { return max(0, d).Microseconds() }
