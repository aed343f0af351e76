package heed

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
)

// admit waits until the next attempt may be sent: for the cool-down of its key,
// for its turn at the Pacer, and for a cool-down that was posted meanwhile.
func (c *call) admit() error {
	for {
		c.looking = false
		if err := c.coolDown(); err != nil || c.t.Pacer == nil {
			return err
		}
		c.still = false
		if err := c.pace(); err != nil {
			return err
		}
		if c.looking || !c.cooledMeanwhile() {
			return nil
		}
		c.unused()
	}
}

// coolDown returns at once if the key's lane is open, which is all that a
// request costs that meets no cool-down.
func (c *call) coolDown() error {
	lanes := c.t.lanes()
	if lanes == nil {
		return nil
	}
	c.readBoard(lanes)
	l := c.closedLane(lanes)
	if l == nil {
		return nil
	}
	err := c.wait(lanes, l)
	if overdue, ok := err.(*OverdueError); ok {
		c.traceRefused(overdue)
	}
	return err
}

func (c *call) closedLane(lanes *LocalBoard) *lane {
	if !lanes.used.Load() {
		return nil
	}
	key := c.key()
	if key.Key == "" {
		return nil
	}
	return lanes.closed(key)
}

// key is what a cool-down of this request applies to.
func (c *call) key() hostkey.Name {
	if c.t.Key == nil {
		return c.host
	}
	if !c.asked {
		c.cool, c.asked = hostkey.NameOf(c.t.Key(c.req)), true
	}
	return c.cool
}

// readBoard closes the lane of a key for which others have posted, if there is
// a Board that others can post to.
func (c *call) readBoard(lanes *LocalBoard) {
	shared := c.t.shared()
	if shared == nil {
		return
	}
	key := c.key()
	if key.Key == "" {
		return
	}
	wait, every, err := shared.Read(c.req.Context(), key.Key)
	if err != nil {
		c.degraded(err)
	}
	if wait > 0 || every > 0 {
		lanes.hear(key, now(), wait, every)
	}
}

// post lets everybody know that the key is to be left alone, for as long as a was told,
// and which policies denied it.
func (c *call) post(a *Attempt) {
	lanes := c.t.lanes()
	if lanes == nil {
		return
	}
	key := c.key()
	if key.Key == "" {
		return
	}
	hint, denials := a.hint, a.denials()
	lanes.post(key, c.ended, hint, denials)
	if shared := c.t.shared(); shared != nil {
		if err := shared.Post(c.req.Context(), key.Key, min(hint, longestCoolDown), slowest(denials, hint)); err != nil {
			c.degraded(err)
		}
	}
}

// cooling is what is left of the key's cool-down.
func (c *call) cooling() time.Duration {
	if lanes := c.t.lanes(); lanes != nil {
		if l := c.closedLane(lanes); l != nil {
			wait, _ := l.left(c.clock())
			return wait
		}
	}
	return 0
}

// cooledMeanwhile reports that a cool-down was posted while the Pacer held the
// request back.
func (c *call) cooledMeanwhile() bool {
	lanes := c.t.lanes()
	if lanes == nil {
		return false
	}
	c.readBoard(lanes)
	if c.pass.lane != nil {
		return c.pass.stale()
	}
	return c.cooling() > 0
}

// wait stands in line for l. Others may post while it does.
func (c *call) wait(lanes *LocalBoard, l *lane) error {
	w := &waiter{attempts: c.number, called: c.start, wake: make(chan struct{}, 1)}
	l.join(w)
	defer l.leave(w)
	told := c.told // the end of the wait that was traced
	for {
		now := now()
		pass, wait, cooling := l.ask(w, now)
		if pass.lane != nil {
			c.pass = pass
			return nil
		}
		if cooling {
			if err := c.mayWait(wait, now); err != nil {
				return c.look(l, wait, now, err)
			}
			if end := now + wait; end > told {
				c.cooled(end - max(now, told))
				told = end
			}
		}
		left, limit := c.left(now)
		if left -= beforeDeadline; left <= 0 {
			return c.overdue(min(wait, patience), 0, limit)
		}
		if err := c.sleep(min(wait, left), w.wake); err != nil {
			return err
		}
		c.readBoard(lanes)
	}
}

// beforeDeadline is when a wait in line ends that leads to nothing: not with the
// deadline, so that it is known which of the two it was.
const beforeDeadline = time.Millisecond

// mayWait refuses a wait that is longer than the request may take. Its place in
// the drip comes on top, and is not known yet.
func (c *call) mayWait(wait, now time.Duration) error {
	if most := c.policy.maxWait(); wait > most {
		return c.overdue(wait, most, limitMaxWait)
	}
	if left, limit := c.left(now); wait > left {
		return c.overdue(wait, left, limit)
	}
	return nil
}

// overdue is the error of a request whose cool-down is too long.
func (c *call) overdue(wait, left time.Duration, limit string) error {
	return &OverdueError{Key: c.key().Key, Wait: wait, Left: left, Limit: limit, Cause: CauseCoolDown, Deadline: limit == limitDeadline}
}

// look lets one request go now and then although its key cools down for longer
// than requests wait: a server that was wrong once must not be lost for a day.
func (c *call) look(l *lane, wait, now time.Duration, refusal error) error {
	if wait > c.policy.maxWait() && l.look(now, c.policy.lookInterval()) {
		c.looking = true
		return nil
	}
	return refusal
}

func (c *call) cooled(wait time.Duration) {
	if c.t.Trace == nil && c.traces == nil {
		return
	}
	req, key := c.req, c.key().Key
	c.allTraces(func(trace *Trace) {
		if trace.Cooled != nil {
			trace.Cooled(req, key, wait)
		}
	})
}

// pace waits for the request's turn at the Pacer.
func (c *call) pace() error {
	began := now()
	most, limit := c.policy.maxWait(), limitMaxWait
	if left := c.elapsedLeft(began); left < most {
		most, limit = left, limitMaxElapsed
	}
	if err := paceAtMost(c.t.Pacer, c.req, most); err != nil {
		return c.refusedByPacer(err, began, most, limit)
	}
	c.paced = true
	if c.t.Trace == nil && c.traces == nil {
		return nil
	}
	req, wait := c.req, now()-began
	c.allTraces(func(trace *Trace) {
		if trace.Paced != nil {
			trace.Paced(req, wait)
		}
	})
	return nil
}

// refusedByPacer traces the error of a Pacer, and returns it. An OverdueError gets the
// cause, and the limit that the wait is longer than.
func (c *call) refusedByPacer(err error, began, most time.Duration, limit string) error {
	var overdue *OverdueError
	if !errors.As(err, &overdue) || overdue == nil {
		c.traceRefused(&OverdueError{Key: c.host.Key, Cause: CausePace, Err: err})
		return err
	}
	e := *overdue
	e.Cause = CausePace
	switch spent := most - e.Left; {
	case e.Deadline:
		e.Limit = limitDeadline
	case 0 <= spent && spent <= now()-began:
		e.Limit = limit // of which the Pacer has used some
	}
	if err != error(overdue) {
		e.Err = err
		c.traceRefused(&e)
		return err
	}
	c.traceRefused(&e)
	return &e
}

// paceAtMost bounds a Pacer that does not know of bounds by a deadline, which
// leaves it a moment even where no wait is allowed.
func paceAtMost(p Pacer, req *http.Request, most time.Duration) error {
	if bounded, ok := p.(BoundedPacer); ok {
		return bounded.WaitAtMost(req, most)
	}
	ctx, cancel := context.WithTimeout(req.Context(), max(most, time.Millisecond))
	defer cancel()
	err := p.Wait(req.WithContext(ctx))
	if err == nil || req.Context().Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	overdue := OverdueError{Key: hosts.Key(req.URL.Scheme, req.URL.Host), Wait: most}
	if theirs := (*OverdueError)(nil); errors.As(err, &theirs) {
		overdue = *theirs // but of a deadline that is not the caller's
	}
	overdue.Left, overdue.Deadline = most, false
	return &overdue
}
