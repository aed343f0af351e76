package pace

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// reviewEvery is how often a line checks whether its waiters can still be in time: limits
// change.
const reviewEvery = time.Second

// reviewAtMost is the shortest time between reviews if limits change all the time.
const reviewAtMost = 100 * time.Millisecond

// longestOvertaken is how long a waiter for several gates may be overtaken by waiters for
// one of them. After that its gates are kept for it, or it might wait forever.
const longestOvertaken = 5 * time.Second

// A line is where the requests of one key wait, first in, first out, each for one or more
// gates. A request whose gates are open may overtake those that wait for another gate.
//
// A waiting request has taken nothing. It takes its cost from all its gates when it is
// admitted. So when one leaves the line, nothing has to be given back and those behind it
// move up.
type line struct {
	mu     *sync.Mutex              // guards all below, and the gates; several lines may share it
	before func(a, b startTag) bool // the order; if nil, by arrival
	fixed  bool                     // the gates change only when a waiter comes or goes

	waiting  list.List // of *waiter
	busy     []*demand // of the gates that have waiters
	reviewed time.Time
	overtook int64       // how many waiters came before others since then
	timer    *time.Timer // calls tick; nil without waiters
}

// A gate is one limit. Its methods are called with the line locked.
type gate interface {
	// cost returns the number of units that a request takes.
	cost(c costs) int64

	// delay returns how long n units must wait behind ahead units of other waiters:
	// forever if they never fit, unknown if only an event can tell.
	delay(n, ahead int64, now time.Time) time.Duration

	// due is delay for the first waiter.
	due(n int64, now time.Time) time.Duration

	// spare reports whether the units for c are left besides those that others wait for.
	// A request that cannot wait takes them early.
	spare(c costs, ahead int64, now time.Time) bool

	// take takes n units. It returns the number of units taken before now, or -1 if the
	// gate needs no charge to be kept for the request.
	take(n int64, now time.Time) (before int64)

	// giveBack returns n units that were taken and not used.
	giveBack(n int64, now time.Time)

	// idle is called when the gate has no more waiters.
	idle(now time.Time)

	// demand returns the waiters for the gate.
	demand() *demand
}

// A demand counts the waiters for a gate.
type demand struct {
	gate    gate
	count   int
	units   int64     // their total cost
	first   time.Time // when the first of them came
	blocked bool      // in releaseLocked: a waiter ahead is waiting for the gate
}

// A claim is a request for units of some gates.
type claim struct {
	key      string
	gates    *[]gate // may change while it waits
	costs    costs
	deadline deadline
}

// A charge is the cost of a request at one gate.
type charge struct {
	gate   gate
	n      int64
	before int64 // the result of take
}

// A waiter is a claim in line.
type waiter struct {
	claim
	start    startTag // in a Queue
	joined   time.Time
	line     *line
	place    *list.Element // nil once it has left the line
	counted  []charge      // its part of the demand at each gate
	taken    []charge      // what it took on admission
	done     chan error    // gets nil on admission, or why it is refused
	admitted bool
}

// errExpired ends a wait of unknown length.
var errExpired = errors.New("pace: waited too long")

// joinLocked admits c at once if it can: then the waiter is nil and the charges are those
// to keep. Otherwise c joins the line, or is refused.
func (l *line) joinLocked(c *claim, start startTag, now time.Time) (*waiter, []charge, error) {
	l.refreshLocked(now)
	last, overtaken := l.placeLocked(start)
	wait := c.delay(now, overtaken)
	// Each that overtook others may have made one of them too late, which does not count.
	if l.overtook > 0 && !c.deadline.allows(wait, now) &&
		c.deadline.allows(c.delay(now, overtaken+l.overtook), now) {
		l.reviewLocked(now)
		last, overtaken = l.placeLocked(start)
		wait = c.delay(now, overtaken)
	}
	if wait <= 0 {
		return nil, c.take(now), nil
	}
	if !c.deadline.allows(wait, now) {
		if c.spare(now) {
			return nil, c.take(now), nil
		}
		l.idleLocked(now, *c.gates)
		return nil, nil, c.deadline.overdue(c.key, wait, now)
	}
	w := &waiter{claim: *c, start: start, joined: now, line: l, done: make(chan error, 1)}
	w.deadline = c.deadline.withGrace()
	l.insertLocked(w, last)
	if overtaken > 0 {
		l.overtook++
	}
	l.countLocked(w)
	l.refreshLocked(now)
	return w, nil, nil
}

// delay returns how long c must wait behind all waiters but so many units.
func (c *claim) delay(now time.Time, overtaken int64) (longest time.Duration) {
	for _, g := range *c.gates {
		longest = max(longest, g.delay(g.cost(c.costs), g.demand().units-overtaken, now))
	}
	return longest
}

func (c *claim) spare(now time.Time) bool {
	for _, g := range *c.gates {
		ahead := g.demand().units
		if g.delay(g.cost(c.costs), ahead, now) > 0 && !g.spare(c.costs, ahead, now) {
			return false
		}
	}
	return true
}

// take takes the cost of c from its gates. It returns the charges to keep: those of gates
// that need to know later what a request took.
func (c *claim) take(now time.Time) (charges []charge) {
	for _, g := range *c.gates {
		n := g.cost(c.costs)
		if before := g.take(n, now); before >= 0 {
			charges = append(charges, charge{g, n, before})
		}
	}
	return charges
}

// wait blocks until w is admitted, until it expires, or until ctx ends.
func (w *waiter) wait(ctx context.Context, expired <-chan time.Time) error {
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return w.leave(ended(ctx))
	case <-expired:
		return w.leave(errExpired)
	}
}

// leave takes w out of the line. If w was admitted at the same moment, it returns what w
// took.
func (w *waiter) leave(why error) error {
	l := w.line
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if w.place != nil {
		l.dismissLocked(w, why)
	} else if err := <-w.done; err == nil {
		w.giveBack(now)
	}
	l.refreshLocked(now)
	return why
}

// giveBack returns what w took. Gates that may change during a wait record it in taken.
func (w *waiter) giveBack(now time.Time) {
	for _, c := range w.taken {
		c.gate.giveBack(c.n, now)
	}
	if w.taken == nil {
		for _, g := range *w.gates {
			g.giveBack(g.cost(w.costs), now)
		}
	}
}

// placeLocked returns the last waiter before a new one, and how many come after that.
func (l *line) placeLocked(start startTag) (last *list.Element, overtaken int64) {
	last = l.waiting.Back()
	for last != nil && l.before != nil && l.before(start, last.Value.(*waiter).start) {
		last, overtaken = last.Prev(), overtaken+1
	}
	return last, overtaken
}

func (l *line) insertLocked(w *waiter, last *list.Element) {
	if last == nil {
		w.place = l.waiting.PushFront(w)
	} else {
		w.place = l.waiting.InsertAfter(w, last)
	}
}

// countLocked adds w to the demand of its gates.
func (l *line) countLocked(w *waiter) {
	w.counted = w.counted[:0]
	for _, g := range *w.gates {
		n, q := g.cost(w.costs), g.demand()
		if q.count == 0 {
			q.gate, q.first = g, w.joined
			l.busy = append(l.busy, q)
		}
		q.count++
		q.units += n
		w.counted = append(w.counted, charge{gate: g, n: n})
	}
}

// admitLocked takes the cost of w and admits it.
func (l *line) admitLocked(w *waiter, now time.Time) {
	w.taken, w.admitted = w.take(now), true
	l.dismissLocked(w, nil)
}

// dismissLocked removes w from the line and sends it why, nil for admission.
func (l *line) dismissLocked(w *waiter, why error) {
	l.waiting.Remove(w.place)
	w.place = nil
	for _, c := range w.counted {
		q := c.gate.demand()
		q.count--
		q.units -= c.n
	}
	w.done <- why
}

// refreshLocked runs after every change, and before every decision.
func (l *line) refreshLocked(now time.Time) {
	if l.waiting.Len() == 0 && l.timer == nil {
		return
	}
	next := l.releaseLocked(now)
	if !l.fixed && now.Sub(l.reviewed) >= reviewEvery {
		l.reviewLocked(now)
		next = l.releaseLocked(now)
	}
	l.armLocked(next)
}

// releaseLocked admits the waiters whose gates are open. It returns the time until the
// next one.
func (l *line) releaseLocked(now time.Time) time.Duration {
	next, blocked := unknown, 0
	if !l.fixed {
		next = l.reviewed.Add(reviewEvery).Sub(now)
	}
	for place := l.waiting.Front(); place != nil && blocked < len(l.busy); {
		w := place.Value.(*waiter)
		place = place.Next()
		wait, overtaken := time.Duration(0), now.Sub(w.joined) > longestOvertaken
		for _, g := range *w.gates {
			q := g.demand()
			d := unknown // behind a waiter for the same gate
			if !q.blocked {
				d = g.due(g.cost(w.costs), now)
			}
			if d > 0 && !q.blocked && q.count > 0 { // l.busy lacks a gate without a count
				q.blocked = true
				blocked++
			}
			wait = max(wait, d)
		}
		if wait > 0 {
			next = min(next, wait)
			if overtaken { // keep its gates for it
				for _, g := range *w.gates {
					if q := g.demand(); !q.blocked && q.count > 0 {
						q.blocked = true
						blocked++
					}
				}
			}
			continue
		}
		l.admitLocked(w, now)
	}
	busy := l.busy[:0]
	for _, q := range l.busy {
		if q.blocked = false; q.count > 0 {
			busy = append(busy, q)
		} else {
			q.gate.idle(now)
		}
	}
	l.busy = busy
	return next
}

// reviewLocked counts all waiters anew and refuses those that would now wait too long.
func (l *line) reviewLocked(now time.Time) {
	l.reviewed, l.overtook = now, 0
	for _, q := range l.busy {
		q.count, q.units = 0, 0
	}
	counted := l.busy
	l.busy = nil
	for place := l.waiting.Front(); place != nil; {
		w := place.Value.(*waiter)
		place = place.Next()
		w.counted = w.counted[:0]
		switch wait := w.claim.delay(now, 0); {
		case len(*w.gates) == 0:
			l.dismissLocked(w, nil)
		case w.deadline.allows(wait, now):
			l.countLocked(w)
		case w.spare(now):
			l.admitLocked(w, now)
		default:
			l.dismissLocked(w, w.deadline.overdue(w.key, wait, now))
		}
	}
	for _, q := range counted {
		if q.count == 0 {
			q.gate.idle(now)
		}
	}
}

// idleLocked calls idle of the gates that have no waiters.
func (l *line) idleLocked(now time.Time, gates []gate) {
	for _, g := range gates {
		if g.demand().count == 0 {
			g.idle(now)
		}
	}
}

// armLocked sets the timer to the next moment with something to do.
func (l *line) armLocked(next time.Duration) {
	switch {
	case l.waiting.Len() == 0 || next == unknown:
		if l.timer != nil {
			l.timer.Stop()
			l.timer = nil
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(next, l.tick)
	default:
		l.timer.Reset(next)
	}
}

// tick is called by the timer.
func (l *line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshLocked(time.Now())
}
