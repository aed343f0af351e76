package redisstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heedhttp/heed/quota"
)

// An otherTime error says that Redis' clock is not where p was told it is: nothing was
// done, and p is to be encoded for that time.
type otherTime int64

func (t otherTime) Error() string {
	return fmt.Sprintf("redisstore: Redis' clock is far from this one: it is %d µs since the Unix epoch", int64(t))
}

// errSpecial says that plain.lua found what it cannot read: nothing was done, and the plan
// is special.
var errSpecial = errors.New("redisstore: not plain")

// errReply says that a server has replied what no script of ours does.
var errReply = errors.New("redisstore: unexpected reply")

// answer answers the errands by the reply, in which is what the script found, and
// returns how many values were found that nobody here has written. What became of
// them is worked out here once more, and whether the charges were made must agree.
func (p *plan) answer(reply string) (corrupt int64, err error) {
	if reply == "" && p.plain() {
		return 0, errSpecial
	}
	r := reader{reply, true}
	now := number(r.next(7))
	if r.ok && r.rest == "" && p.hasCalendar() {
		return 0, otherTime(now)
	}
	for i := range p.ids {
		p.ids[i].known = r.bit()
	}
	verdicts := r.next(p.told())
	for s := range p.subjects {
		for at := p.subjects[s].cells; at >= 0; at = p.cells[at].next {
			corrupt += p.cells[at].read(r.value(), now)
		}
	}
	if !r.ok || r.rest != "" {
		return 0, fmt.Errorf("%w %.60q", errReply, reply)
	}
	return corrupt, p.replay(verdicts, now)
}

func (p *plan) hasCalendar() bool {
	return slices.ContainsFunc(p.limits, func(l *quota.Limit) bool { return l.Policy().Calendar != 0 })
}

// told is how many errands the script was told of.
func (p *plan) told() (n int) {
	for _, e := range p.errands {
		if !e.peek {
			n++
		}
	}
	return n
}

// read takes note of what c holds, and returns 1 if that is something else than a
// value, or from a time to come.
func (c *cell) read(value string, now int64) (corrupt int64) {
	if c.value = value; value == "" {
		return 0
	}
	b, ok := believed(value, now)
	if !ok {
		return 1
	}
	c.bucket = b
	return 0
}

// believed is decode of what is not from a time to come.
func believed(value string, now int64) (b quota.Bucket, ok bool) {
	if b, ok = decode(value); ok && b.Time <= now+farAhead {
		return b, true
	}
	return quota.Bucket{}, false
}

func (c *cell) leave(b quota.Bucket) { c.bucket, c.changed = b, true }

// replay answers the errands, one after the other.
func (p *plan) replay(verdicts string, now int64) error {
	targets := p.targets
	for _, e := range p.errands {
		p.decide(e, targets, now)
		if !e.peek {
			if (verdicts[0] == 1) != e.allowed {
				return fmt.Errorf("%w: whether charges fit is not what it is here", errReply)
			}
			verdicts = verdicts[1:]
		}
		targets = targets[len(e.charges):]
	}
	return nil
}

// decide answers e, and notes what it leaves.
func (p *plan) decide(e *errand, targets []target, now int64) {
	e.now, e.allowed = now, true
	e.visits = slices.Grow(e.visits[:0], len(e.charges))[:len(e.charges)]
	for i := range e.charges {
		p.visit(e, i, targets[i])
	}
	if e.verb.settles() {
		return
	}
	for i := range e.charges {
		if e.took(i) {
			p.cells[targets[i].cell].leave(e.visits[i].after)
			p.remember(targets[i])
		}
	}
}

// visit works out what becomes of charge i of e.
func (p *plan) visit(e *errand, i int, t target) {
	v, c := &e.visits[i], &e.charges[i]
	at := &p.cells[t.cell]
	*v = visit{before: at.bucket, found: c.Limit.Drain(at.bucket, e.now), fits: true}
	v.met = v.found
	if at.errand == e { // which has charged it
		v.met = c.Limit.Drain(e.visits[at.last].after, e.now)
	}
	v.after = v.met
	if v.repeat = p.repeats(e, t); v.repeat {
		return
	}
	switch {
	case e.verb == toRevoke && at.restore(e, e.revoked[i]):
	case e.verb.settles():
		p.settle(e, v, c, t)
	default:
		p.try(e, i, t)
	}
}

// try works out whether charge i of e fits.
func (p *plan) try(e *errand, i int, t target) {
	v, c := &e.visits[i], &e.charges[i]
	if e.verb == toReserve {
		v.after, v.wait, v.fits = c.Limit.TryWithin(v.met, c.Units(), e.now, e.max)
	} else {
		v.after, v.fits = c.Limit.Try(v.met, c.Units(), e.now)
	}
	e.allowed = e.allowed && (v.fits || c.DryRun)
	if !v.fits {
		return
	}
	at := &p.cells[t.cell]
	at.errand, at.last = e, i
	if t.id >= 0 {
		p.ids[t.id].errand = e
	}
}

func (p *plan) settle(e *errand, v *visit, c *quota.Charge, t target) {
	if v.after = c.Limit.Settle(v.met, c.N, chargedAt(c), e.now); v.after != v.met {
		p.cells[t.cell].leave(v.after)
	}
	if e.verb == toSettle {
		p.remember(t)
	}
}

// repeats reports whether the ID of a charge of e was charged before, which it is no
// more if e revokes it.
func (p *plan) repeats(e *errand, t target) bool {
	if t.id < 0 {
		return false
	}
	id := &p.ids[t.id]
	if e.verb == toRevoke {
		id.known, id.errand = false, nil
	}
	return id.known || id.errand == e
}

func (p *plan) remember(t target) {
	if t.id >= 0 {
		p.ids[t.id].known = true
	}
}
