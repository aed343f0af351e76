package contract

import (
	"fmt"
	"time"
)

// A keyState is the cool-down of one key.
type keyState struct {
	pending []hint      // so recent that other requests may be under way
	active  hint        // the one that ends last
	began   time.Time   // when the first refusal since the last good answer came
	last    time.Time   // the previous arrival
	probe   int         // the exchange of the last probe
	good    []time.Time // when the latest requests were answered well, five at most
	short   time.Time   // when a refusal with a short hint last came
}

// alone reports whether a refusal may bind its own request alone: its hint is short, no field says that
// nothing is left, and the key is answered well.
func (c *keyState) alone(h hint) bool {
	if h.wait > shortHint || h.spent {
		return false
	}
	first := h.at.Sub(c.short) > time.Minute
	c.short = h.at
	n := len(c.good)
	return first && n > 0 && h.at.Sub(c.good[n-1]) <= 10*time.Second ||
		n == manyGood && h.at.Sub(c.good[0]) <= 2*time.Second
}

// refused records a refusal, the answer to exchange i.
func (c *keyState) refused(i int, h hint) {
	if c.began.IsZero() {
		c.began = h.at
	}
	switch {
	case c.probe == i && i > 0:
		c.active = h // what a probe is told replaces what was told before
	case !c.alone(h):
		c.pending = append(c.pending, h)
	}
}

// answeredWell records a good answer to exchange i.
func (c *keyState) answeredWell(i int, at time.Time) {
	c.began = time.Time{}
	c.good = append(c.good[max(0, len(c.good)-manyGood+1):], at)
	if c.probe == i && i > 0 {
		c.active, c.pending = hint{}, nil
	}
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

// mayProbe reports whether an arrival at that time may be a probe of a long cool-down: the time since the
// first refusal doubles.
func (c *keyState) mayProbe(h hint, at time.Time) bool {
	since := h.at
	if c.last.After(since) {
		since = c.last
	}
	return h.wait > probeAfter && !h.spent && at.Sub(since) >= max(probeAfter-slack, since.Sub(c.began)-inFlight)
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
			h, ok := retryAfter(ev.i, e)
			switch refused := ok && e.Status == 429 && h.wait > 0; {
			case refused:
				own[s.of[ev.i]] = h
				c.refused(ev.i, h)
			case 0 < e.Status && e.Status < 429:
				c.answeredWell(ev.i, ev.at)
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
			if early(h, ev.at) {
				c.probe = ev.i
			}
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
