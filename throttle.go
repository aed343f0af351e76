package heed

import (
	"math/bits"
	"time"

	"github.com/heedhttp/heed/internal/adaptive"
)

// A throttle is for a server that refuses and does not say for how long. Once refusals are
// a large part of what it answers, nothing is sent for a moment, in which the server may
// recover; twice as long each time that the first request after it is refused, too. Then
// requests are released at a rate that is searched for.
//
// Such a limit is often one route's. So a route that is answered, and was not refused, goes
// on as if nothing were. And a server that refuses by chance, or some requests whatever the
// rate, is none to be slow for: if refusals come again and again between good answers at a
// quarter of what was answered well, the throttle ends.
type throttle struct {
	on      bool
	rate    adaptive.Rate
	pause   time.Duration // the last one
	resumes time.Duration // when it ends
	granted bool          // a request was answered since
	held    time.Duration // when a request was last held back

	refusedAt time.Duration // when the last refusal without a hint came
	second    int64         // the last one of those counted
	answers   [2]int        // in that second, and in the one before
	refusals  [2]int
	routes    map[string]*route // since the answers are counted

	best    int           // good answers in one second
	recent  uint32        // of the last answers at a low rate, the newest first: whether each was a refusal
	ended   time.Duration // when it last did because it was of no use
	atLeast time.Duration // for how long it must last before it may end so again
}

// A route is what is known of one.
type route struct {
	good      int // answers that were no refusals
	refusedAt time.Duration
}

const (
	// A server that refuses one request in a hundred by chance must slow nobody down.
	fewestRefusals = 3
	refusedPart    = 1. / 5

	// Nor one that was found to refuse by chance, for some minutes.
	manyRefusals  = 10
	manyRefused   = 1. / 2
	trustedFor    = 10 * time.Minute
	longestUseful = time.Hour

	fewestGood = 3   // answers, for a route to be spared
	mostRoutes = 100 // that are known

	countFor     = time.Minute // after a refusal
	firstPause   = time.Second
	longestPause = 10 * time.Second
	keepRate     = 0.75 // of what was refused
	leastRate    = 0.1  // requests a second
	mostRate     = 1e6
)

// counts reports whether answers are counted.
func (t *throttle) counts(now time.Duration) bool {
	return t.refusedAt > 0 && now-t.refusedAt < countFor
}

// interval is the time between two requests.
func (t *throttle) interval() time.Duration {
	return time.Duration(float64(time.Second) / t.rate.PerSecond)
}

// count takes note of an answer. It reports whether a pause is to begin. held tells that
// requests wait.
func (t *throttle) count(a answer, held bool, now time.Duration) (pause bool) {
	if a.failed {
		return false
	}
	first := !t.counts(now)
	if a.refused && a.plain {
		t.refusedAt = now
	}
	if first {
		return false // or three refusals in a row would be all that was ever counted
	}
	t.turnTo(int64(now / time.Second))
	spared := t.spares(a.route, now)
	t.note(a, now)
	if spared && !a.refused {
		return false
	}
	t.answers[0]++
	if a.refused {
		t.refusals[0]++
	}
	t.best = max(t.best, t.answers[0]-t.refusals[0])
	if !t.on {
		return t.stormed(now)
	}
	if !t.granted && a.refused {
		return a.sent >= t.resumes
	}
	if a.refused {
		least := leastRate
		if !t.rate.Refused { // one refusal alone, far below what it has answered well, is by chance
			least = max(least, min(t.rate.PerSecond, float64(t.best)/16))
		}
		t.rate.Refuse(epoch.Add(a.sent), epoch.Add(now), held, least)
	} else {
		t.granted = t.granted || a.sent >= t.resumes
		t.rate.Answer(epoch.Add(a.sent), epoch.Add(now), held, 0, mostRate)
	}
	t.compare(a.refused, now)
	return false
}

// turnTo begins a second, and forgets what is older than the one before.
func (t *throttle) turnTo(second int64) {
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

// stormed reports that refusals are a large part of the answers.
func (t *throttle) stormed(now time.Duration) bool {
	fewest, part := fewestRefusals, refusedPart
	if t.trusted(now) {
		fewest, part = manyRefusals, manyRefused
	}
	refusals := t.refusals[0] + t.refusals[1]
	return refusals >= fewest && float64(refusals) >= part*float64(t.answers[0]+t.answers[1])
}

// trusted reports that the server was lately found to refuse by chance.
func (t *throttle) trusted(now time.Duration) bool { return t.ended > 0 && now-t.ended < trustedFor }

// start begins a pause, and then the search.
func (t *throttle) start(now time.Duration) {
	if !t.on {
		t.pause = 0
		if t.trusted(now) { // wrongly
			t.atLeast = min(max(2*t.atLeast, time.Minute), longestUseful)
		}
	}
	t.pause = min(max(firstPause, 2*t.pause), longestPause)
	t.resumes = now + t.pause + uniform(t.pause/2)
	t.on, t.granted, t.held, t.recent = true, false, t.resumes, allRefused
	t.rate = adaptive.From(epoch.Add(t.resumes), keepRate)
}

const allRefused = 1<<32 - 1

// compare asks whether the throttle is of use. It looks at the last thirty answers at a quarter
// of the best rate or less. If three were refusals that came after a good answer, it ends: of
// a limit that depends on the rate, there are none, or one after the other. If none was, the
// rate may double. And after a minute, and then after longer and longer, it ends to see
// whether requests are still refused.
func (t *throttle) compare(refused bool, now time.Duration) {
	const thirty = 1<<30 - 1
	t.recent <<= 1
	if refused {
		t.recent |= 1
	}
	if t.rate.PerSecond > float64(t.best)/4 {
		t.recent = allRefused
	}
	lasted := now - t.resumes
	switch {
	case bits.OnesCount32(t.recent&^(t.recent>>1)&thirty) >= 3 && lasted >= t.atLeast:
		t.on, t.ended, t.best = false, now, 0
	case lasted >= max(time.Minute, 2*t.atLeast):
		t.on, t.best, t.atLeast = false, 0, max(time.Minute, min(2*t.atLeast, longestUseful))
	case t.recent&thirty == 0:
		t.rate.Peak, t.recent = max(t.rate.Peak, 2*t.rate.PerSecond/keepRate), allRefused
	}
}

// refusing reports that the server refuses whatever it is sent.
func (t *throttle) refusing() bool { return t.on && (t.rate.Refused || !t.granted) }

// note remembers an answer for its route.
func (t *throttle) note(a answer, now time.Duration) {
	r := t.routes[a.route]
	if r == nil {
		if t.routes == nil || len(t.routes) >= mostRoutes {
			t.routes = make(map[string]*route)
		}
		r = new(route)
		t.routes[a.route] = r
	}
	if a.refused {
		r.refusedAt = now
	} else {
		r.good++
	}
}

// spares reports that a route has had good answers, and lately no other.
func (t *throttle) spares(name string, now time.Duration) bool {
	r := t.routes[name]
	return r != nil && r.good >= fewestGood && (r.refusedAt == 0 || now-r.refusedAt >= countFor)
}
