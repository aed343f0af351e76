// Package adaptive finds the rate that a server allows and does not tell.
package adaptive

import (
	"math"
	"time"
)

// First is the rate at which a search begins: most servers allow that, and those
// that do not have said so, four refusals later.
const First = 10

// A rate is back where it was refused after so long, or so many requests, whichever
// is later: one in a hundred is then refused at slow servers, and what is in flight
// when the first is, at fast ones.
const (
	recoverySeconds  = 10
	recoveryRequests = 100
)

// longestSeries is how long a limit refuses everything: for the rest of a window of a minute,
// and until a request has seen that it is over, at a rate that fell to almost nothing.
const longestSeries = 90 * time.Second

// A Rate is a search for the rate that a server allows. It falls to a part on a refusal,
// and to half on each one after it, doubles on answers until it is back at that part of
// what was refused, and grows slowly from there: AIMD, with a curve instead of a line. It
// has no clock and holds no request back: the caller says what time it is, and keeps to
// PerSecond.
//
// An answer speaks of the rate at which its request was sent. So those to
// requests sent before the last change cause no other.
//
// The zero Rate is not ready to use: From makes one. It is not safe for concurrent use.
type Rate struct {
	Keep      float64 // what the first of a series of refusals leaves of the rate
	PerSecond float64 // requests a second, now
	Peak      float64 // where the last series of refusals began; 0 before the first
	Refused   bool    // the series goes on: no request sent since was answered

	began   time.Time // when the series did
	before  float64   // Peak before it
	changed time.Time // when the rate last fell or doubled
	grown   float64   // seconds since it was that part of Peak again
	spent   float64   // seconds since a series began, without those in which nobody waited
	granted float64   // requests that were answered since
	cycle   cycle
}

// From is a Rate that begins at First: what was sent before that moment says nothing of it.
// With a keep of a half it finds any rate within 20 seconds; with more it uses more of what a
// server allows that has no room for bursts, and may take minutes to find others.
func From(begin time.Time, keep float64) Rate {
	return Rate{Keep: keep, PerSecond: First, changed: begin}
}

// A cycle is the time from the end of a series of refusals to that of the next one.
type cycle struct {
	spent   float64 // seconds, without those in which nobody waited
	before  float64 // of these, before the series began
	granted float64 // requests that were answered
}

// fewest is how many requests must have been answered for an average to say anything.
const fewest = 10

// Refuse counts that the server refused what was sent then. held tells that requests
// had to wait for the rate. The rate does not fall below least.
func (r *Rate) Refuse(sent, now time.Time, held bool, least float64) {
	if !sent.After(r.changed) {
		return
	}
	factor := 0.5
	if !r.Refused {
		r.before, r.began = r.Peak, now
		r.beginSeries(least)
		factor = r.Keep
	}
	r.PerSecond, r.changed, r.grown = max(min(r.PerSecond, r.Peak)*factor, least), now, 0
	r.spend(held)
}

// beginSeries takes the rate for the peak, unless that is far more than the
// server granted on average since the last series began. So it is if the rest
// of a window was refused whose quota was used up too soon.
func (r *Rate) beginSeries(least float64) {
	known := r.PerSecond
	if r.Peak > 0 && r.spent > 0 {
		known = max(min(known, 2*r.granted/r.spent), least)
	}
	r.Refused, r.Peak, r.spent, r.granted = true, known, 0, 0
	r.cycle.before = r.cycle.spent
}

// endSeries is that the server does again what it is asked. If it did not for longer
// than it had, that was the rest of a window whose quota was used up in no time: what it
// grants in the long run is what it granted from the end of one to that of the next,
// and not the rate at which it began to refuse.
//
// A longer series was an outage: nothing follows from that.
func (r *Rate) endSeries(now time.Time) {
	if now.Sub(r.began) > longestSeries {
		r.Peak, r.spent, r.granted = max(r.Peak, r.before), 0, 0
	} else if r.cycle.granted >= fewest && r.cycle.spent > 2*r.cycle.before {
		r.Peak = min(r.Peak, 2*r.cycle.granted/r.cycle.spent)
	}
	r.Refused, r.cycle = false, cycle{}
}

// spend counts the time for which a request was held back.
func (r *Rate) spend(held bool) {
	if held {
		r.spent += 1 / r.PerSecond
		r.cycle.spent += 1 / r.PerSecond
	}
}

// Answer counts that the server did what was asked of it then. If nobody was held back,
// that is no reason to go faster. With a step of zero the rate grows along the curve,
// else by so much a second. It does not rise above most.
func (r *Rate) Answer(sent, now time.Time, held bool, step, most float64) {
	fresh := sent.After(r.changed)
	if fresh && r.Refused {
		r.endSeries(now)
	}
	r.granted++
	r.cycle.granted++
	r.spend(held)
	switch sure := r.Sure(); {
	case !held:
	case r.PerSecond >= sure:
		r.grown += 1 / r.PerSecond
		r.PerSecond = min(max(r.PerSecond, r.curve(step)), most)
	case fresh:
		r.PerSecond, r.changed = min(2*r.PerSecond, sure, most), now
	}
}

// Sure is as far as the rate doubles: while nothing was refused, without end.
func (r *Rate) Sure() float64 {
	if r.Peak == 0 {
		return math.MaxFloat64
	}
	return r.Peak * r.Keep
}

// curve is the rate after it has grown for a while: with a step, in a straight line. If
// that is zero, along the cubic curve of RFC 9438 (CUBIC), but with a length that
// does not depend on the rate: steep at first, level near the peak, and steep
// again beyond it, where the server may have come to allow more.
//
//	peak · (1 + (1-keep)·(t/length - 1)³)
func (r *Rate) curve(step float64) float64 {
	if step > 0 {
		return r.Sure() + step*r.grown
	}
	length := max(recoverySeconds, recoveryRequests/r.Peak)
	return r.Peak * (1 + (1-r.Keep)*math.Pow(r.grown/length-1, 3))
}
