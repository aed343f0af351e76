package contract

import (
	"fmt"
	"time"
)

// A keyState is the cool-down of one key.
type keyState struct {
	pending []hint    // so recent that other requests may be under way
	active  hint      // the one that ends last
	last    time.Time // the previous arrival
}

// settle makes hints active that were given long enough before at.
func (c *keyState) settle(at time.Time) {
	for len(c.pending) > 0 && at.Sub(c.pending[0].at) > inFlight {
		if c.pending[0].until.After(c.active.until) {
			c.active = c.pending[0]
		}
		c.pending = c.pending[1:]
	}
}

// mayProbe reports whether an arrival at that time may be a probe of a long cool-down.
func (c *keyState) mayProbe(h hint, at time.Time) bool {
	since := h.at
	if c.last.After(since) {
		since = c.last
	}
	return h.wait > probeAfter && at.Sub(since) >= probeAfter-slack
}

// forbids reports whether h forbids an arrival at that time.
func (c *keyState) forbids(h hint, at time.Time) bool { return early(h, at) && !c.mayProbe(h, at) }

// coolDown applies a hint to other requests once none of them can have been sent before it was
// known, and to the refused request itself at once.
func coolDown(log []Exchange) ([]Breach, bool) {
	s := parseLog(log, byIdempotencyKey)
	keys := make(map[string]*keyState)
	own := make(map[*request]hint)
	var f collector
	for _, ev := range s.events {
		e := &log[ev.i]
		c := keys[e.key()]
		if c == nil {
			c = &keyState{}
			keys[e.key()] = c
		}
		if ev.answer {
			if h, ok := retryAfter(ev.i, e); ok && e.Status == 429 && h.wait > 0 {
				c.pending = append(c.pending, h)
				own[s.of[ev.i]] = h
			}
			continue
		}
		c.settle(ev.at)
		h, guessed := c.active, false
		if mine := own[s.of[ev.i]]; mine.until.After(h.until) {
			guessed = !s.of[ev.i].named && !c.forbids(h, ev.at)
			h = mine
		}
		switch {
		case h.wait <= 0:
		case c.forbids(h, ev.at):
			want, got := notBefore(log, h, ev.at)
			f.breach(want, got, h.i, ev.i).Guessed = guessed
		default:
			f.judged++
		}
		c.last = ev.at
	}
	return f.result()
}

// A waiterGroup is all requests that wait for the end of one cool-down.
type waiterGroup struct {
	waiters, returned int
	until             time.Time
	last              int // the last one that joined
}

// waiterGroups are those of one key: a request that returns from the first group may at once be
// refused and join the second.
type waiterGroups struct{ first, second waiterGroup }

func (c *waiterGroups) join(h hint) {
	c.advance(h.at)
	to := &c.first
	if to.waiters > 0 && !h.at.Before(to.until) {
		to = &c.second
	}
	to.waiters++
	to.last = h.i
	if h.until.After(to.until) {
		to.until = h.until
	}
}

// advance drops the first group when its time is over.
func (c *waiterGroups) advance(at time.Time) {
	if at.Sub(c.first.until) > instant && c.second.waiters > 0 {
		c.first, c.second = c.second, waiterGroup{}
	}
}

// returnTogether counts how many requests wait and how many return when the wait ends. It need not
// know which is which.
func returnTogether(log []Exchange) ([]Breach, bool) {
	keys := make(map[string]*waiterGroups)
	var f collector
	for _, ev := range events(log) {
		e := &log[ev.i]
		c := keys[e.key()]
		if c == nil {
			c = &waiterGroups{}
			keys[e.key()] = c
		}
		if !ev.answer {
			c.advance(ev.at)
			c.first.arrives(ev, &f)
		} else if h, ok := retryAfter(ev.i, e); ok && e.Status == 429 && h.wait > 0 {
			c.join(h)
		}
	}
	return f.result()
}

func (c *waiterGroup) arrives(ev event, f *collector) {
	late := ev.at.Sub(c.until)
	if c.waiters < herd || late < -slack {
		return
	}
	f.judged++
	if late > instant {
		return
	}
	if c.returned++; c.returned == c.waiters {
		f.breach(fmt.Sprintf("%d requests spread out", c.waiters), fmt.Sprintf("all of them within %v", instant), c.last,
			ev.i)
	}
}
