// Package adaptive finds the rate that a server allows but does not announce.
package adaptive

import (
	"math"
	"time"
)

// First is the rate at which a search begins. Most servers allow it; others are found after about
// four refusals.
const First = 10

// After a refusal the rate needs this time, or this many requests, to reach the refused rate again,
// whichever is later. A slow server then refuses one request in a hundred, and a fast one those that
// are in flight at the first refusal.
const (
	recoverySeconds  = 10
	recoveryRequests = 100
)

// longestSeries is how long a limit can refuse everything: for the rest of a window of a minute,
// and until a request, at a rate that fell to almost nothing, finds out that it is over.
const longestSeries = 90 * time.Second

// A Rate searches for the rate that a server allows. On the first refusal of a series it falls to
// Keep, on each further one to a half. On answers it doubles up to Keep of the refused rate, and
// then grows slowly: AIMD, with a curve instead of a straight line. It has no clock and delays
// nothing: the caller passes the time, and keeps to PerSecond.
//
// An answer says something about the rate at which its request was sent, so answers to requests
// sent before the last change are ignored.
//
// From makes a Rate; the zero Rate is not usable. It is not safe for concurrent use.
type Rate struct {
	Keep      float64 // the part of the rate that is left after the first refusal of a series
	PerSecond float64 // requests a second, now
	Peak      float64 // the rate at which the last series of refusals began; 0 before the first
	Refused   bool    // the series goes on: no later request was answered well

	began       time.Time // when the series began
	peakBefore  float64   // Peak before the series
	changed     time.Time // when the rate last fell or doubled
	sinceSure   float64   // seconds since the rate reached Sure again
	busySeconds float64   // seconds since a series began in which requests waited
	answered    float64   // requests answered well since then
	cycle       refusalCycle
}

// From returns a Rate that begins at First. Requests sent before begin are ignored. With a keep of
// 0.5 it finds any rate within 20 seconds. A higher keep uses more of what a server without bursts
// allows, but may need minutes to find other rates.
func From(begin time.Time, keep float64) Rate {
	return Rate{Keep: keep, PerSecond: First, changed: begin}
}

// A refusalCycle is the time from the end of one series of refusals to the end of the next.
type refusalCycle struct {
	busySeconds float64 // seconds in which requests waited
	busyBefore  float64 // the part of them before the series began
	answered    float64 // requests answered well
}

// fewestAnswers is how many answers an average needs.
const fewestAnswers = 10

// Refuse counts the refusal of a request that was sent at that time. held says whether requests had
// to wait for the rate. The rate does not fall below least.
func (r *Rate) Refuse(sent, now time.Time, held bool, least float64) {
	if !sent.After(r.changed) {
		return
	}
	factor := 0.5
	if !r.Refused {
		r.peakBefore, r.began = r.Peak, now
		r.beginSeries(least)
		factor = r.Keep
	}
	r.PerSecond, r.changed, r.sinceSure = max(min(r.PerSecond, r.Peak)*factor, least), now, 0
	r.spend(held)
}

// beginSeries makes the current rate the Peak, but at most twice what the server has answered on
// average since the last series began. The rate can be far above that if the quota of a window was
// used up early and the rest of the window was refused.
func (r *Rate) beginSeries(least float64) {
	known := r.PerSecond
	if r.Peak > 0 && r.busySeconds > 0 {
		known = max(min(known, 2*r.answered/r.busySeconds), least)
	}
	r.Refused, r.Peak, r.busySeconds, r.answered = true, known, 0, 0
	r.cycle.busyBefore = r.cycle.busySeconds
}

// endSeries ends a series of refusals. If it lasted longer than the time before it, it was the rest
// of a window whose quota was used up early. Then the allowed rate is the average over the whole
// cycle, and not the rate at which refusals began.
//
// A series longer than longestSeries was an outage, and says nothing about the rate.
func (r *Rate) endSeries(now time.Time) {
	if now.Sub(r.began) > longestSeries {
		r.Peak, r.busySeconds, r.answered = max(r.Peak, r.peakBefore), 0, 0
	} else if r.cycle.answered >= fewestAnswers && r.cycle.busySeconds > 2*r.cycle.busyBefore {
		r.Peak = min(r.Peak, 2*r.cycle.answered/r.cycle.busySeconds)
	}
	r.Refused, r.cycle = false, refusalCycle{}
}

// spend counts the time in which a request had to wait.
func (r *Rate) spend(held bool) {
	if held {
		r.busySeconds += 1 / r.PerSecond
		r.cycle.busySeconds += 1 / r.PerSecond
	}
}

// Answer counts a good answer to a request that was sent at that time. The rate grows only if
// requests had to wait: along the curve if step is zero, and otherwise by step a second. It does
// not rise above most.
func (r *Rate) Answer(sent, now time.Time, held bool, step, most float64) {
	fresh := sent.After(r.changed)
	if fresh && r.Refused {
		r.endSeries(now)
	}
	r.answered++
	r.cycle.answered++
	r.spend(held)
	switch sure := r.Sure(); {
	case !held:
	case r.PerSecond >= sure:
		r.sinceSure += 1 / r.PerSecond
		r.PerSecond = min(max(r.PerSecond, r.curve(step)), most)
	case fresh:
		r.PerSecond, r.changed = min(2*r.PerSecond, sure, most), now
	}
}

// Sure is the rate up to which the rate doubles. It has no limit before the first refusal.
func (r *Rate) Sure() float64 {
	if r.Peak == 0 {
		return math.MaxFloat64
	}
	return r.Peak * r.Keep
}

// curve is the rate after some growth. With a step it is a straight line. Otherwise it is the cubic
// curve of RFC 9438 (CUBIC), with a length that does not depend on the rate: steep at first, flat
// near the peak, and steep again beyond it, in case the server now allows more.
//
//	peak · (1 + (1-keep)·(t/length - 1)³)
func (r *Rate) curve(step float64) float64 {
	if step > 0 {
		return r.Sure() + step*r.sinceSure
	}
	length := max(recoverySeconds, recoveryRequests/r.Peak)
	return r.Peak * (1 + (1-r.Keep)*math.Pow(r.sinceSure/length-1, 3))
}
