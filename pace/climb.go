package pace

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

const (
	// firstLimit is where a climb begins: most servers allow that, and those
	// that do not have said so, four refusals later.
	firstLimit = 10

	// A climb is back at the rate that was refused after so long, or so many
	// requests, whichever is later: one in a hundred is then refused at slow
	// servers, and what is under way when the first is, at fast ones.
	climbTime     = 10 // seconds
	climbRequests = 100
)

// A climb looks for the rate that a server allows and does not tell. It
// halves on refusals, doubles on answers until it is back at half of what was
// refused, and from there goes up slowly. It knows of no clock: whoever has
// it says what time it is, and keeps to the rate.
//
// An answer speaks of the rate at which its request was sent. So those to
// requests sent before the last halving or doubling cause no other.
type climb struct {
	rate    rate.Limit // now
	peak    rate.Limit // where the last series of refusals began; 0 before the first
	turned  time.Time  // when the rate was last halved or doubled
	refused bool       // the series goes on: no request sent since was answered
	climbed float64    // seconds since the rate was half of peak again
	spent   float64    // seconds since a series began, without those in which nobody waited
	granted float64    // requests that were answered since
	cycle   cycle
}

// A cycle is the time from the end of a series of refusals to that of the next one.
type cycle struct {
	spent   float64 // seconds, without those in which nobody waited
	before  float64 // of these, before the series began
	granted float64 // requests that were answered
}

// fewest is how many requests must have been answered for an average to say anything.
const fewest = 10

// refusal counts that the server refused what was sent then. The rate does not
// fall below least.
func (c *climb) refusal(sent, now time.Time, held bool, least rate.Limit) {
	if !sent.After(c.turned) {
		return
	}
	if !c.refused {
		c.beginSeries(least)
	}
	c.rate, c.turned, c.climbed = max(min(c.rate, c.peak)/2, least), now, 0
	c.pass(held)
}

// beginSeries takes the rate for the peak, unless that is far more than the
// server granted on average since the last series began. So it is if the rest
// of a window was refused whose quota was used up too soon.
func (c *climb) beginSeries(least rate.Limit) {
	known := c.rate
	if c.peak > 0 && c.spent > 0 {
		known = max(min(known, rate.Limit(2*c.granted/c.spent)), least)
	}
	c.refused, c.peak, c.spent, c.granted = true, known, 0, 0
	c.cycle.before = c.cycle.spent
}

// endSeries is that the server does again what it is asked. If it did not for longer
// than it had, that was the rest of a window whose quota was used up in no time: what it
// grants in the long run is what it granted from the end of one to that of the next,
// and not the rate at which it began to refuse.
func (c *climb) endSeries() {
	if c.cycle.granted >= fewest && c.cycle.spent > 2*c.cycle.before {
		c.peak = min(c.peak, rate.Limit(2*c.cycle.granted/c.cycle.spent))
	}
	c.refused, c.cycle = false, cycle{}
}

// pass counts the time for which a request was held back.
func (c *climb) pass(held bool) {
	if held {
		c.spent += 1 / float64(c.rate)
		c.cycle.spent += 1 / float64(c.rate)
	}
}

// answer counts that the server did what was asked of it then. held tells that
// the request was held back: one that was not is no reason to go faster, since
// nobody wanted to. The rate does not rise above most.
func (c *climb) answer(sent, now time.Time, held bool, step, most rate.Limit) {
	fresh := sent.After(c.turned)
	if fresh && c.refused {
		c.endSeries()
	}
	c.granted++
	c.cycle.granted++
	c.pass(held)
	switch half := c.half(); {
	case !held:
	case c.rate >= half:
		c.climbed += 1 / float64(c.rate)
		c.rate = min(max(c.rate, c.curve(step)), most)
	case fresh:
		c.rate, c.turned = min(2*c.rate, half, most), now
	}
}

// half is as far as the rate doubles: while nothing was refused, without end.
func (c *climb) half() rate.Limit {
	if c.peak == 0 {
		return rate.Inf
	}
	return c.peak / 2
}

// curve is the rate after what was climbed: with a step, in a straight line. If
// it is zero, along the cubic curve of RFC 9438 (CUBIC), but with a length that
// does not depend on the rate: steep at first, level near the peak, and steep
// again beyond it, where the server may have come to allow more.
//
//	peak · (1 + ½·(t/length - 1)³)
func (c *climb) curve(step rate.Limit) rate.Limit {
	if step > 0 {
		return c.half() + step*rate.Limit(c.climbed)
	}
	length := max(climbTime, climbRequests/float64(c.peak))
	return c.peak * rate.Limit(1+math.Pow(c.climbed/length-1, 3)/2)
}
