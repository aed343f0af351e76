package pace

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// reviewEvery is how often a line looks whether those who wait still can: limits change.
const reviewEvery = time.Second

// reviewAtMost is how often it does so if limits seem to change all the time.
const reviewAtMost = 100 * time.Millisecond

// longestOvertaken is how long those who wait for one gate may overtake one that waits for that
// and another: after that its gates are kept for it, or it might wait for ever.
const longestOvertaken = 5 * time.Second

// A line is where the requests of one key wait, first in, first out, each for one gate or
// several. One whose gates are open may overtake those who wait for another gate.
//
// A request in line has taken nothing yet. It takes what it costs when all its gates let it
// go. So one that leaves the line has nothing to give back, and those behind it move up.
type line struct {
	mu     *sync.Mutex             // guards all below, and the gates; several lines may share it
	before func(a, b *waiter) bool // the order; if nil, that of arrival
	fixed  bool                    // what its gates say changes only when somebody comes or goes

	waiting  list.List  // of *waiter
	busy     []*waiting // of the gates for which somebody waits
	reviewed time.Time
	timer    *time.Timer // calls tick; nil if nobody waits
}

// A gate is one limit. Its methods are called with the line locked.
type gate interface {
	// cost is how many units a request takes.
	cost(c costs) int64

	// delay is how long n units must wait behind others that wait already: forever if
	// they are never let through, unknown if only an event can tell.
	delay(n, ahead int64, now time.Time) time.Duration

	// due is delay for the first of those who wait already.
	due(n int64, now time.Time) time.Duration

	// spare reports whether n units are left beyond those for which others wait: a
	// request that cannot wait takes them early.
	spare(n, ahead int64, now time.Time) bool

	// take takes n units. It returns how many were taken before this moment, if the gate wants
	// to know that of each request, or -1.
	take(n int64, now time.Time) (before int64)

	// giveBack returns n units that were taken and not used.
	giveBack(n int64, now time.Time)

	// rest is called when nobody waits for the gate any more.
	rest(now time.Time)

	// waiting counts those who wait for the gate.
	waiting() *waiting
}

// A waiting counts the requests in line that wait for a gate.
type waiting struct {
	gate    gate
	count   int
	units   int64     // what they cost together
	first   time.Time // when the first of them came
	blocked bool      // for the rest of a walk along the line
}

// A claim is a request before its gates.
type claim struct {
	key      string
	gates    *[]gate // they may change while it waits
	costs    costs
	deadline deadline
}

// A charge is what a request costs at a gate.
type charge struct {
	gate   gate
	n      int64
	before int64 // what take returned
}

// A waiter is a claim in line.
type waiter struct {
	claim
	start   startTag // in a Queue
	joined  time.Time
	line    *line
	place   *list.Element // nil once it has left the line
	counted []charge      // what it is counted with among those who wait for its gates
	taken   []charge      // what it took when it was released
	done    chan error    // nil if it was admitted, or why it will not be
	passed  bool          // it was admitted
}

// errExpired is the end of a wait of which nobody could say how long it would be.
var errExpired = errors.New("pace: waited too long")

// joinLocked has c take what it costs, if it may: then the waiter is nil, and what gates want to
// know is returned.
func (l *line) joinLocked(c *claim, start startTag, now time.Time) (*waiter, []charge, error) {
	l.refreshLocked(now)
	wait := c.delay(now)
	if wait <= 0 {
		return nil, c.take(now), nil
	}
	if !c.deadline.allows(wait, now) {
		if c.spare(now) {
			return nil, c.take(now), nil
		}
		l.restLocked(now, *c.gates)
		return nil, nil, c.deadline.overdue(c.key, wait, now)
	}
	w := &waiter{claim: *c, start: start, joined: now, line: l, done: make(chan error, 1)}
	w.deadline = c.deadline.eased()
	l.insertLocked(w)
	l.countLocked(w)
	l.refreshLocked(now)
	return w, nil, nil
}

// delay is how long c must wait behind all who wait already.
func (c *claim) delay(now time.Time) (longest time.Duration) {
	for _, g := range *c.gates {
		longest = max(longest, g.delay(g.cost(c.costs), g.waiting().units, now))
	}
	return longest
}

func (c *claim) spare(now time.Time) bool {
	for _, g := range *c.gates {
		n, ahead := g.cost(c.costs), g.waiting().units
		if g.delay(n, ahead, now) > 0 && !g.spare(n, ahead, now) {
			return false
		}
	}
	return true
}

// take takes what c costs. It returns what gates want to know of each request.
func (c *claim) take(now time.Time) (charges []charge) {
	for _, g := range *c.gates {
		n := g.cost(c.costs)
		if before := g.take(n, now); before >= 0 {
			charges = append(charges, charge{g, n, before})
		}
	}
	return charges
}

// wait blocks until w may go, until it expires, or until ctx ends.
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

// leave gives up the place in line, or what was taken if that came at the same moment.
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

// giveBack returns what w took: where gates change while a request waits, they note it.
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

func (l *line) insertLocked(w *waiter) {
	place := l.waiting.Back()
	for place != nil && l.before != nil && l.before(w, place.Value.(*waiter)) {
		place = place.Prev()
	}
	if place == nil {
		w.place = l.waiting.PushFront(w)
	} else {
		w.place = l.waiting.InsertAfter(w, place)
	}
}

// countLocked counts w among those who wait for its gates.
func (l *line) countLocked(w *waiter) {
	w.counted = w.counted[:0]
	for _, g := range *w.gates {
		n, q := g.cost(w.costs), g.waiting()
		if q.count == 0 {
			q.gate, q.first = g, w.joined
			l.busy = append(l.busy, q)
		}
		q.count++
		q.units += n
		w.counted = append(w.counted, charge{gate: g, n: n})
	}
}

// admitLocked has w take what it costs, and go.
func (l *line) admitLocked(w *waiter, now time.Time) {
	w.taken, w.passed = w.take(now), true
	l.dismissLocked(w, nil)
}

// dismissLocked takes w out of the line and tells it why: nil if it may go.
func (l *line) dismissLocked(w *waiter, why error) {
	l.waiting.Remove(w.place)
	w.place = nil
	for _, c := range w.counted {
		q := c.gate.waiting()
		q.count--
		q.units -= c.n
	}
	w.done <- why
}

// refreshLocked is called after every change, and before one is decided on.
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

// releaseLocked lets those go whose gates are open. It returns in how long the next may.
func (l *line) releaseLocked(now time.Time) time.Duration {
	next, blocked := unknown, 0
	if !l.fixed {
		next = reviewEvery
	}
	for place := l.waiting.Front(); place != nil && blocked < len(l.busy); {
		w := place.Value.(*waiter)
		place = place.Next()
		wait, overtaken := time.Duration(0), now.Sub(w.joined) > longestOvertaken
		for _, g := range *w.gates {
			q := g.waiting()
			d := unknown // behind one who waits for the same gate
			if !q.blocked {
				d = g.due(g.cost(w.costs), now)
			}
			if d > 0 && !q.blocked && q.count > 0 {
				q.blocked = true
				blocked++
			}
			wait = max(wait, d)
		}
		if wait > 0 {
			next = min(next, wait)
			if overtaken { // keep its gates for it
				for _, g := range *w.gates {
					if q := g.waiting(); !q.blocked && q.count > 0 {
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
			q.gate.rest(now)
		}
	}
	l.busy = busy
	return next
}

// reviewLocked counts all who wait anew, and sends those away who would now have to wait
// too long.
func (l *line) reviewLocked(now time.Time) {
	l.reviewed = now
	for _, q := range l.busy {
		q.count, q.units = 0, 0
	}
	counted := l.busy
	l.busy = nil
	for place := l.waiting.Front(); place != nil; {
		w := place.Value.(*waiter)
		place = place.Next()
		w.counted = w.counted[:0]
		switch wait := w.claim.delay(now); {
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
			q.gate.rest(now)
		}
	}
}

// restLocked tells those gates for which nobody waits.
func (l *line) restLocked(now time.Time, gates []gate) {
	for _, g := range gates {
		if g.waiting().count == 0 {
			g.rest(now)
		}
	}
}

// armLocked sets the timer to the next moment when there is something to do.
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

// tick is what the timer calls.
func (l *line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshLocked(time.Now())
}
