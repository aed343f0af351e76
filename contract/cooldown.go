package contract

import (
	"fmt"
	"time"
)

// A cooling is the cool-down of one key.
type cooling struct {
	coming []told    // told so recently that other requests may be on their way
	active told      // the one that ends last
	last   time.Time // the arrival before this one
}

// settle makes active what was told long enough before at.
func (c *cooling) settle(at time.Time) {
	for len(c.coming) > 0 && at.Sub(c.coming[0].at) > inFlight {
		if c.coming[0].until.After(c.active.until) {
			c.active = c.coming[0]
		}
		c.coming = c.coming[1:]
	}
}

// looks reports whether an arrival at the given time is the one that may see
// whether a long cool-down still holds.
func (c *cooling) looks(h told, at time.Time) bool {
	since := h.at
	if c.last.After(since) {
		since = c.last
	}
	return h.wait > lookAfter && at.Sub(since) >= lookAfter-slack
}

// coolDown holds other requests to what one was told as soon as none of them
// can have been on its way, and its own next attempt at once.
func coolDown(log []Exchange) ([]Breach, bool) {
	s := read(log, byIdempotencyKey)
	keys := make(map[string]*cooling)
	own := make(map[*request]told)
	var f findings
	for _, ev := range s.events {
		e := &log[ev.i]
		c := keys[e.key()]
		if c == nil {
			c = &cooling{}
			keys[e.key()] = c
		}
		if ev.answer {
			if h, ok := retryAfter(ev.i, e); ok && e.Status == 429 && h.wait > 0 {
				c.coming = append(c.coming, h)
				own[s.of[ev.i]] = h
			}
			continue
		}
		c.settle(ev.at)
		h := c.active
		if mine := own[s.of[ev.i]]; mine.until.After(h.until) {
			h = mine
		}
		switch {
		case h.wait <= 0:
		case early(h, ev.at) && !c.looks(h, ev.at):
			want, got := notBefore(log, h, ev.at)
			f.breach(want, got, h.i, ev.i)
		default:
			f.judged++
		}
		c.last = ev.at
	}
	return f.result()
}

// A crowd is everybody who waits for the end of one cool-down.
type crowd struct {
	told, back int
	until      time.Time
	last       int // the last that was told
}

// crowds are those of one key: whoever of the first comes back may at once be
// told to join the second.
type crowds struct{ first, second crowd }

func (c *crowds) join(h told) {
	c.pass(h.at)
	to := &c.first
	if to.told > 0 && !h.at.Before(to.until) {
		to = &c.second
	}
	to.told++
	to.last = h.i
	if h.until.After(to.until) {
		to.until = h.until
	}
}

// pass forgets the first crowd when its moment is over.
func (c *crowds) pass(at time.Time) {
	if at.Sub(c.first.until) > instant && c.second.told > 0 {
		c.first, c.second = c.second, crowd{}
	}
}

// wakesAtOnce counts who was told to wait and who is back when it is over. It
// need not know who is who.
func wakesAtOnce(log []Exchange) ([]Breach, bool) {
	keys := make(map[string]*crowds)
	var f findings
	for _, ev := range events(log) {
		e := &log[ev.i]
		c := keys[e.key()]
		if c == nil {
			c = &crowds{}
			keys[e.key()] = c
		}
		if !ev.answer {
			c.pass(ev.at)
			c.first.arrives(ev, &f)
		} else if h, ok := retryAfter(ev.i, e); ok && e.Status == 429 && h.wait > 0 {
			c.join(h)
		}
	}
	return f.result()
}

func (c *crowd) arrives(ev event, f *findings) {
	late := ev.at.Sub(c.until)
	if c.told < herd || late < -slack {
		return
	}
	f.judged++
	if late > instant {
		return
	}
	if c.back++; c.back == c.told {
		f.breach(fmt.Sprintf("%d requests spread out", c.told), fmt.Sprintf("all of them within %v", instant), c.last, ev.i)
	}
}
