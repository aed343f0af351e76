package cool

import "time"

// A tally counts a key's answers for a minute after each refusal that may have come by chance: from one
// node of many, from an endpoint with a limit of its own, or because too many were under way for a moment.
type tally struct {
	refusedAt time.Duration // when the last such refusal came
	second    int64         // the second that is being counted
	answers   [2]int        // in that second, and in the one before
	refusals  [2]int
	routes    map[string]*route // by name, since counting began

	inRow      int           // refusals since the last good answer
	retries    int           // refused retries since the last one that was answered well
	limitUntil time.Duration // the refusals were no chance: until then no other one is
}

// A route is what a tally knows of one route.
type route struct {
	good      int // how many good answers
	refusedAt time.Duration
}

const (
	countFor   = time.Minute // how long answers are counted after a refusal
	fewestGood = 3           // good answers that exempt a route

	// A refusal with a short hint is by chance only where so many were answered well within two seconds.
	fewestAnswered = 5
	// So many in a row are no chance, nor so many of which a third of the answers are. Then none is for a minute.
	fewestLimited = 6
	limitedShare  = 1. / 3
	limitedFor    = time.Minute
)

// counts reports whether answers are being counted.
func (t *tally) counts(now time.Duration) bool {
	return t.refusedAt > 0 && now-t.refusedAt < countFor
}

// add counts an answer, and reports whether it says something about a limit. What was answered before the
// first refusal was not counted, so nor is that refusal. A route of which nothing is refused says nothing
// about the others.
func (t *tally) add(a Answer, now time.Duration) bool {
	first := !t.counts(now)
	if a.Unhinted || a.Short {
		t.refusedAt = now
	}
	if first {
		if a.Refused {
			t.inRow = 1
			t.record(a, now)
		}
		return false
	}
	t.startSecond(int64(now / time.Second))
	exempt := t.exempts(a.Route, now)
	t.record(a, now)
	if exempt && !a.Refused {
		return false
	}
	t.answers[0]++
	if a.Refused {
		t.refusals[0]++
		t.inRow++
	} else {
		t.inRow = 0
	}
	switch {
	case a.Attempt > 1 && a.Refused:
		t.retries++
	case a.Attempt > 1:
		t.retries = 0
	}
	return true
}

// startSecond begins to count another second, and drops counts older than the second before it.
func (t *tally) startSecond(second int64) {
	switch second - t.second {
	case 0:
		return
	case 1:
		t.answers[1], t.refusals[1] = t.answers[0], t.refusals[0]
	default:
		t.answers[1], t.refusals[1] = 0, 0
	}
	t.second, t.answers[0], t.refusals[0] = second, 0, 0
}

// refused reports whether so many of the latest answers are refusals, and such a part of them.
func (t *tally) refused(fewest int, part float64) bool {
	refusals := t.refusals[0] + t.refusals[1]
	return refusals >= fewest && float64(refusals) >= part*float64(t.answers[0]+t.answers[1])
}

// good is how many of the latest answers were good.
func (t *tally) good() int { return t.answers[0] + t.answers[1] - t.refusals[0] - t.refusals[1] }

// byChance reports whether a refusal with a short hint, which is not counted yet, says nothing about other
// requests. The first one does not. A third attempt waited twice for as long as it was told: where other
// retries are refused too, new requests take what these wait for.
func (t *tally) byChance(a Answer, now time.Duration) bool {
	if !t.counts(now) {
		return true
	}
	t.startSecond(int64(now / time.Second))
	with := *t
	with.answers[0]++
	with.refusals[0]++
	if with.refused(fewestLimited, limitedShare) || t.inRow+1 >= fewestLimited {
		t.limitUntil = now + limitedFor
	}
	return now >= t.limitUntil && t.good() >= fewestAnswered && !(a.Attempt >= 3 && t.retries > 0)
}

// record counts an answer for its route.
func (t *tally) record(a Answer, now time.Duration) {
	r := t.routes[a.Route]
	if r == nil {
		if t.routes == nil || len(t.routes) >= maxRoutes {
			t.routes = make(map[string]*route)
		}
		r = new(route)
		t.routes[a.Route] = r
	}
	if a.Refused {
		r.refusedAt = now
	} else {
		r.good++
	}
}

// exempts reports whether a route had good answers and no recent refusal.
func (t *tally) exempts(name string, now time.Duration) bool {
	r := t.routes[name]
	return r != nil && r.good >= fewestGood && (r.refusedAt == 0 || now-r.refusedAt >= countFor)
}
