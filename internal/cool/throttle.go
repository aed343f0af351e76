package cool

import (
	"math/bits"
	"time"

	"github.com/heedhttp/heed/internal/adaptive"
)

// A throttle slows requests to a server that refuses them without a hint. It starts once refusals
// are a large part of the answers, or two follow each other where few are answered. First nothing is sent
// during a pause, in which the server may recover. The pause doubles each time the first request after it
// is refused too. Then requests are released at a rate that is searched for. After a minute, and later after
// longer times, it ends, to see whether the server still refuses requests. If so, it goes on with that rate.
//
// Such a limit often covers one route only, so a route whose requests are answered is not slowed.
//
// Some servers refuse requests at random, whatever the rate. If refusals keep coming between good
// answers at a quarter of the best rate, the throttle ends.
type throttle struct {
	on       bool
	rate     adaptive.Rate
	pause    time.Duration // length of the last pause
	resumes  time.Duration // when it ends
	answered bool          // a request sent after it was answered well
	held     time.Duration // when a request last had to wait

	tally

	known         float64       // the rate that was found before
	bestPerSecond int           // the most good answers in one second
	recent        uint32        // the last answers at a low rate, one bit each, the newest lowest: 1 is a refusal
	ended         time.Duration // when it was last found to be of no use
	minDuration   time.Duration // how long it must last before that is judged again
}

// epoch turns times into those that adaptive.Rate takes.
var epoch = time.Unix(0, 0)

const (
	// A server that refuses one request in a hundred at random must not slow requests down.
	fewestRefusals = 3
	refusedShare   = 1. / 5
	fewInRow       = 2

	// For some minutes after a server was found to refuse at random, it takes more to start.
	manyRefusals     = 10
	manyRefusedShare = 1. / 2
	atRandomFor      = 10 * time.Minute
	longestUseful    = time.Hour
	fewestBest       = 2 // of fewer in the best second it is unknown which rate that was

	firstPause   = time.Second
	longestPause = 10 * time.Second
	keepRate     = 0.75 // the part of a refused rate that is tried next
	leastRate    = 0.1  // requests a second
	mostRate     = 1e6
)

// interval returns the time between two requests.
func (t *throttle) interval() time.Duration {
	return time.Duration(float64(time.Second) / t.rate.PerSecond)
}

// count records an answer, and reports whether a pause must begin. held says whether requests are
// waiting.
func (t *throttle) count(a Answer, held bool, now time.Duration) (pause bool) {
	if a.Failed || !t.add(a, now) {
		return false
	}
	t.bestPerSecond = max(t.bestPerSecond, t.answers[0]-t.refusals[0])
	if !t.on {
		return a.Unhinted && t.tooManyRefusals(now)
	}
	if !t.answered && a.Refused {
		return a.Sent >= t.resumes
	}
	if a.Refused {
		least := leastRate
		if !t.rate.Refused { // a single refusal far below the best rate is probably a random one
			least = max(least, min(t.rate.PerSecond, float64(t.bestPerSecond)/16))
		}
		t.rate.Refuse(epoch.Add(a.Sent), epoch.Add(now), held, least)
	} else {
		t.answered = t.answered || a.Sent >= t.resumes
		t.rate.Answer(epoch.Add(a.Sent), epoch.Add(now), held, 0, mostRate)
	}
	t.evaluate(a.Refused, now)
	return false
}

// tooManyRefusals reports whether refusals are a large part of the recent answers.
func (t *throttle) tooManyRefusals(now time.Duration) bool {
	if t.refusesAtRandom(now) {
		return t.refused(manyRefusals, manyRefusedShare)
	}
	return t.refused(fewestRefusals, refusedShare) || t.inRow >= fewInRow && t.good() < fewestAnswered
}

// refusesAtRandom reports whether the server was lately found to refuse at random.
func (t *throttle) refusesAtRandom(now time.Duration) bool {
	return t.ended > 0 && now-t.ended < atRandomFor
}

// start begins a pause, after which the search for a rate begins.
func (t *throttle) start(now time.Duration) {
	if !t.on {
		t.pause = 0
		if t.refusesAtRandom(now) { // the server does not refuse at random after all
			t.minDuration = min(max(2*t.minDuration, time.Minute), longestUseful)
		}
	}
	t.pause = min(max(firstPause, 2*t.pause), longestPause)
	t.resumes = now + t.pause + Uniform(t.pause/2)
	t.on, t.answered, t.held, t.recent = true, false, t.resumes, allRefused
	t.rate = adaptive.From(epoch.Add(t.resumes), keepRate)
	if t.known > 0 {
		t.rate.PerSecond, t.rate.Peak = t.known, t.known/keepRate
	}
}

const allRefused = 1<<32 - 1

// evaluate ends the throttle if it is of no use. It looks at the last thirty answers at a quarter
// of the best rate or less. A limit that depends on the rate refuses none of these, or several in a
// row; so if three of them were refusals right after a good answer, the throttle ends. If none was
// a refusal, the rate may double.
func (t *throttle) evaluate(refused bool, now time.Duration) {
	const thirty = 1<<30 - 1
	t.recent <<= 1
	if refused {
		t.recent |= 1
	}
	if t.bestPerSecond < fewestBest || t.rate.PerSecond > float64(t.bestPerSecond)/4 {
		t.recent = allRefused
	}
	lasted := now - t.resumes
	switch {
	case bits.OnesCount32(t.recent&^(t.recent>>1)&thirty) >= 3 && lasted >= t.minDuration:
		t.on, t.ended, t.bestPerSecond, t.known = false, now, 0, 0
	case lasted >= max(time.Minute, 2*t.minDuration):
		t.known = t.rate.Sure()
		t.on, t.bestPerSecond, t.minDuration = false, 0, max(time.Minute, min(2*t.minDuration, longestUseful))
	case t.recent&thirty == 0:
		t.rate.Peak, t.recent = max(t.rate.Peak, 2*t.rate.PerSecond/keepRate), allRefused
	}
}

// refusing reports whether the server currently refuses everything.
func (t *throttle) refusing() bool { return t.on && (t.rate.Refused || !t.answered) }
