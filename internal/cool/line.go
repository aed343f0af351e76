package cool

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// LongestLine is how many requests may wait in one line.
	LongestLine = 10_000

	// A response that never comes must not block the line for longer.
	longestSilence = time.Second

	// Timers and busy machines are late. A release that is late by less than this does not delay
	// the next one.
	lateness = 10 * time.Millisecond
)

// A Waiter is a request in line.
type Waiter struct {
	Attempts    int           // sent so far
	LastAttempt bool          // its call has a single attempt left, after others
	Called      time.Duration // when its call began

	// In a CoolDown.
	Since    time.Duration // when it began to wait for this attempt
	Deadline time.Duration // the latest time at which it may be sent
	MaxWait  time.Duration // how long it may wait for this attempt
	Ended    time.Duration // when the attempt before ended

	// In an Outage.
	Patience  time.Duration // until when it waits
	ProbeFrom time.Duration // it is no probe before

	Wake chan struct{} // receives when the waiter must ask again; it needs room for one

	owes, broke bool          // in an Outage: it costs a retry to be a probe, which its call cannot pay
	asks        time.Duration // in a CoolDown: when it asks again at the latest
}

// price orders the waiters that can be a probe. What was never sent costs nothing, and comes first.
func (w *Waiter) price() int {
	price := 2 * w.Attempts
	if w.owes {
		price++
	}
	return price
}

func (w *Waiter) wake() {
	select {
	case w.Wake <- struct{}{}:
	default:
	}
}

// A Permit allows one request to be sent. The zero Permit belongs to a request that did not wait in a line, or
// not to its end.
type Permit struct {
	round int // of what gave it; it counts from 1
	Probe bool
}

// Given reports whether p is not the zero Permit.
func (p Permit) Given() bool { return p.round > 0 }

// A line has waiters in the order of their release.
type line []*Waiter

// insert puts w in its place, behind those that are its equals, and returns that place.
func (l *line) insert(w *Waiter, order func(a, b *Waiter) int) (at int) {
	at, _ = slices.BinarySearchFunc(*l, w, func(v, w *Waiter) int { return cmp.Or(order(v, w), -1) })
	*l = slices.Insert(*l, at, w)
	return at
}

// index returns w's place, or -1.
func (l line) index(w *Waiter) int { return slices.Index(l, w) }

func (l *line) remove(at int) { *l = slices.Delete(*l, at, at+1) }

// A release lets a line go. Each request has a place in a window, so that neither they nor those of
// other processes arrive together. Besides, only so many may be unanswered: as many as were under way and
// answered well when all others were told to wait, at least one. Good answers make them more: the fewer they
// are, the faster. What is unanswered after a second counts as answered: a slow server is not one that
// refuses, and what is released doubles each second.
type release struct {
	begun      bool
	end        time.Duration // of the window
	first      time.Duration // no request is released before
	last       time.Duration // when the last release was, or was due
	places     int           // how many places are left
	gap        time.Duration // between two places
	unanswered int           // how many released requests are under way
	underWay   int           // how many were under way before, and answered well since
	more       int           // how many more may be unanswered
	answered   int           // how many were answered since that grew
}

// begin divides the window that begins at from among the waiters. The first release comes at a random
// time within the first place.
func (r *release) begin(from, window time.Duration, waiters int) {
	r.begun, r.end = true, from+window
	r.divide(from, waiters)
	r.first = from + Uniform(r.gap)
}

// beginAfter is begin for a line of which a probe was sent just now. So the others go at the end of their
// places: a probe of each of many small clients is a load of its own.
func (r *release) beginAfter(now, window time.Duration, waiters int) {
	r.begin(now, window, waiters)
	r.first = now + r.gap
}

// divide divides what is left of the window among the waiters.
func (r *release) divide(now time.Duration, waiters int) {
	r.places = max(1, waiters)
	r.gap = max(0, r.end-now) / time.Duration(r.places)
}

// due returns when the next request may be released, however many are unanswered. Two releases are at
// least every apart.
func (r *release) due(now, every time.Duration) time.Duration {
	if r.places > 0 && now < r.end {
		every = max(every, r.gap)
	}
	return max(r.first, r.last+every)
}

// full reports whether no more requests may be unanswered.
func (r *release) full() bool { return r.unanswered >= max(1, r.underWay)+r.more }

// answer records that a released request was not refused. Where few were under way, each answer lets one
// more be unanswered, so that these double. Where many were, they are likely all that the server takes at
// once: one more is tried after twice as many answers.
func (r *release) answer() {
	if r.answered++; r.answered >= max(1, 2*(r.underWay-1)) {
		r.answered = 0
		r.more++
	}
}

// silentUntil returns when the requests that are unanswered count as answered, or 0 if the next one need
// not wait for that.
func (r *release) silentUntil() time.Duration {
	if !r.full() {
		return 0
	}
	return r.last + longestSilence
}

// sent records a release at a certain time. It reports whether the requests before it were silent for so
// long that they count as answered.
func (r *release) sent(at time.Duration) (silent bool) {
	if silent = r.full(); silent {
		r.more += r.unanswered
	}
	r.last = at
	r.unanswered++
	r.places--
	return silent
}

// Uniform draws from [0, d]. It returns 0 if d is not positive.
func Uniform(d time.Duration) time.Duration {
	switch {
	case d <= 0:
		return 0
	case d == longest:
		d--
	}
	return time.Duration(rand.Int64N(int64(d) + 1))
}

const longest = time.Duration(1<<63 - 1)

// After returns t+d, or the longest Duration instead of overflowing.
func After(t, d time.Duration) time.Duration {
	if d > longest-t {
		return longest
	}
	return t + d
}
