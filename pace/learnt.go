package pace

import (
	"math"
	"time"
)

// longestSample is how many answers make a sample although older requests are still in
// flight, which were perhaps charged as well.
const longestSample = 16

// An estimate is what a request of a route costs in a unit that the server counts, such as
// tokens: about nine in ten cost no more. The zero estimate knows nothing.
type estimate struct {
	units float64
	known bool
}

// learn adds the cost of one more request. A higher one moves the estimate up by a quarter,
// a lower one moves it down by a ninth of that, so it rests where nine in ten are lower. It
// moves no further than to that cost.
func (e *estimate) learn(cost float64) {
	switch {
	case !e.known:
		e.units, e.known = cost, true
	case cost > e.units:
		e.units = min(cost, e.units+e.units/4+1)
	default:
		e.units = max(cost, e.units-e.units/36)
	}
}

// atMost returns the estimate for a request that costs at most bound, which is 0 if unknown.
// So is the result.
func (e *estimate) atMost(bound int64) int64 {
	switch units := int64(math.Ceil(e.units)); {
	case !e.known:
		return bound
	case bound > 0:
		return min(units, bound)
	default:
		return units
	}
}

// A sample is a series of answers whose requests' costs are averaged.
type sample struct {
	answers   int
	remaining int64     // before the first of them
	at        time.Time // when it was that
}

// learnCost corrects an estimate by an answer, before p is updated. A sample ends when all
// requests that were sent before are answered: then Remaining fell by their costs, less what
// came back meanwhile, whether the server charges a request at its start or at its end.
func (p *policy) learnCost(a *answer, remaining int64, until, now time.Time) {
	if p.quota <= 0 {
		return
	}
	s := &p.sample
	first := p.at.IsZero() || p.refill == atOnce && until.Sub(p.until) >= p.window/2 // of a period
	if first {
		*s = sample{0, remaining, now}
	}
	if a.learnt == nil {
		s.remaining -= a.own
		return
	}
	// The first guess is all that was used. If it was others' use, later answers correct it.
	if !a.learnt.known && remaining > p.quota/2 {
		a.learnt.learn(float64(p.quota - remaining))
	}
	if first {
		return
	}
	s.answers++
	if a.overtook && s.answers < longestSample {
		return
	}
	before, meanwhile := float64(s.remaining), now.Sub(s.at).Seconds()
	switch {
	case p.fills():
		before += p.flow() * meanwhile
	case p.refill == oneByOne && p.window > 0:
		before += float64(p.quota-s.remaining) * meanwhile / p.window.Seconds()
	}
	if fell := min(before, float64(p.quota)) - float64(remaining); fell > 0 {
		a.learnt.learn(fell / float64(s.answers))
		*s = sample{0, remaining, now}
	}
}
