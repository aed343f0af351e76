package pace

import (
	"math"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	// freePart is the part of a quota above which nothing is delayed. A client that uses
	// less than a quarter of its quota in a window notices nothing.
	freePart = 0.75

	// slidingParts divides the window of a policy whose units come back one by one: what
	// is left is spread over one part. In the long run 1/17 of the quota stays unused,
	// for other clients.
	slidingParts = 16

	// othersPart is the part of a quota to leave for other clients, once they were
	// detected.
	othersPart = 1. / 16

	// leakyPart is the part of a leaky bucket to leave unused: the server delays whatever
	// is sent early.
	leakyPart = 0.95

	// maxAge is how long an answer is trusted, whatever it says.
	maxAge = 24 * time.Hour

	// minAnswerWait is the shortest time to wait for the answer of a request that asks
	// for the new state.
	minAnswerWait = time.Second

	// probeInterval is the time between requests that go although nothing is left, if
	// that lasts longer than this. A server that was wrong once must not be lost for a
	// day.
	probeInterval = time.Minute

	// secondsError is the rounding error of a time in whole seconds.
	secondsError = time.Second

	// mostLeft caps the units that are left, so that no sum of them overflows.
	mostLeft = 1 << 50
)

// A policyID distinguishes the policies of a key.
type policyID struct {
	name, unit, partition string
	limit                 string // the vendor's name for it
	quota                 int64
	window                time.Duration
}

// A policy is a limit as its server announced it. It is a gate: what is left is spread
// over the time that is left. Callers hold the lock of its line.
type policy struct {
	waiters demand
	id      policyID
	routes  int // the number of routes with this policy

	quota  int64
	window time.Duration // if not announced, the longest reset; 0 if unknown
	refill refill

	remaining int64         // in the newest answer
	at        time.Time     // when that came
	until     time.Time     // when the quota is renewed
	sent      time.Time     // when the newest answered request was sent
	reset     time.Duration // in the newest answer
	left      float64       // remaining, less what was taken since; in a bucket, with what came back
	since     time.Time     // when left was updated
	burst     int64         // the highest level seen: a bucket holds no more, as far as is known
	others    time.Time     // when other clients were last detected

	sum      int64 // units taken in total
	before   int64 // sum before counted
	counted  time.Time
	underway int64         // units of requests that are not answered yet
	latency  time.Duration // of the newest answer
	last     time.Time     // when units were last taken
	sample   sample        // of costs
	asked    time.Time     // when a request was sent after until, to ask for the new state
}

// A refill is the way in which units come back.
type refill int

const (
	atOnce     refill = iota // all at until
	oneByOne                 // each about a window after its use
	steadily                 // quota in a window, up to burst
	inQueue                  // steadily, but the server delays admitted requests
	unmeasured               // steadily, with an unknown remainder
)

// useful reports whether l says anything to pace by.
func useful(l *ratelimit.Limit) bool {
	if l.Remaining < 0 {
		return l.Quota > 0 && l.Window > 0
	}
	return l.Next >= 0 || l.Reset >= 0 || l.Window > 0
}

// refillOf returns the refill that l announces.
func refillOf(l *ratelimit.Limit) refill {
	known := l.Quota > 0 && l.Window > 0
	switch {
	case l.Remaining < 0:
		return unmeasured
	case known && l.Algorithm == ratelimit.TokenBucket:
		return steadily
	case known && l.Algorithm == ratelimit.LeakyBucket:
		return inQueue
	case l.Algorithm == ratelimit.SlidingWindow, l.Algorithm == ratelimit.SlidingLog:
		return oneByOne
	}
	return atOnce
}

// timeLeft returns how long the state in l holds.
func (p *policy) timeLeft(l *ratelimit.Limit) time.Duration {
	d := max(l.Next, l.Reset)
	switch {
	case p.refill == oneByOne && l.Remaining > 0:
		d = max(d, p.window) // before that, only some come back
	case p.refill == oneByOne && l.Next > 0:
		d = max(l.Next, p.part()) // when the next unit comes back, it is just that one
	case d < 0:
		d = l.Window
	}
	return min(d, maxAge)
}

// part returns the time over which to spread what is left, if units come back one by one.
func (p *policy) part() time.Duration { return p.window / slidingParts }

// An answer is what a response says about a policy.
type answer struct {
	*ratelimit.Limit
	sent     time.Time // when its request was sent
	own      int64     // units of that request
	later    int64     // units taken at the same moment or later: not part of Remaining
	underway int64     // units of other unanswered requests: perhaps part of Remaining

	learnt    *estimate // to be corrected, or nil
	overtook  bool      // an earlier request is not answered yet
	uncharged int64     // if its request was sent before the policy was known: others in flight
}

// learn updates p from an answer.
func (p *policy) learn(a answer, now time.Time) {
	remaining := min(a.Remaining, mostLeft)
	// An answer is newer than the last one if its request was sent after that came.
	// Answers to overlapping requests come in any order.
	newer := a.sent.After(p.at)
	level := p.level(now)
	p.detect(a, remaining, newer, now)
	p.quota, p.burst = a.Quota, max(p.burst, remaining+a.own)
	until := now.Add(p.timeLeft(a.Limit))
	p.learnCost(&a, remaining, until, now)
	if a.learnt != nil && a.uncharged > 0 { // some of these, too, were sent before p was known
		a.underway = max(a.underway, a.uncharged*a.learnt.atMost(0))
		a.later = max(a.later, a.underway)
	}
	switch announced := refillOf(a.Limit) == p.refill; {
	case p.fills() && announced:
		p.left = float64(remaining-a.later) + p.flow()*now.Sub(a.sent).Seconds()
		if !newer {
			p.left = min(p.left, level)
		}
	case p.fills():
		// The server may count at the end of a request. Then none of those underway is part of
		// Remaining, and what came back meanwhile is: leave that unused, as long as it is little.
		p.left = float64(remaining-max(a.later, a.underway)) + p.flow()*max(0, now.Sub(a.sent)-p.window/8).Seconds()
		if remaining == 0 { // less than nothing is left
			p.left -= max(0, p.flow()*a.Reset.Seconds()-float64(p.quota))
		}
	default:
		// Within one period, Remaining only falls.
		if same := p.refill == atOnce && until.Sub(p.until) < p.window/2; same && !newer {
			remaining = min(remaining, p.remaining)
		}
		p.left = float64(remaining - a.underway)
	}
	p.since, p.remaining, p.at, p.until, p.asked = now, remaining, now, until, time.Time{}
	p.latency = now.Sub(a.sent)
}

// detect finds out, from one answer to the next, how units come back, how long that
// takes, and whether other clients use them.
func (p *policy) detect(a answer, remaining int64, newer bool, now time.Time) {
	known := newer && !p.at.IsZero()
	// Within one period the end hardly moves; a new period moves it by a window.
	moved := max(a.Next, a.Reset) - p.until.Sub(now)
	early := !p.at.IsZero() && a.sent.After(p.sent) && remaining > p.remaining &&
		p.until.Sub(now) > secondsError && moved.Abs() < p.window/2
	kind, bucket := refillOf(a.Limit), p.bucketWindow(a.Limit, remaining)
	if kind == atOnce && (early || p.refill == oneByOne) {
		kind = oneByOne
	}
	switch {
	case bucket > 0:
		kind, p.window, p.burst = steadily, bucket, a.Quota
	case a.Window > 0:
		p.window = a.Window
	case known && -moved > p.window/2: // contradicts the last answer
		kind, p.window = refillOf(a.Limit), a.Reset
	default:
		p.window = max(p.window, a.Reset)
	}
	p.refill, p.reset, p.sent = kind, a.Reset, later(p.sent, a.sent)
	if known && a.own > 0 && remaining < p.remaining-a.own-a.underway {
		p.others = now
	}
}

// bucketWindow returns the time in which all units of a bucket come back, if two answers
// show that p is one although none says so: then the time until all are back is
// proportional to the number of missing units. In a window it falls while that one grows.
func (p *policy) bucketWindow(l *ratelimit.Limit, remaining int64) time.Duration {
	missing, missed := float64(l.Quota-remaining), float64(p.quota-p.remaining)
	switch {
	case p.at.IsZero() || l.Quota != p.quota || l.Reset < 0 || refillOf(l) != atOnce:
		return 0
	case p.refill == steadily: // found before
		reset := seconds(missing / p.flow())
		if off := l.Reset - reset; off.Abs() <= secondsError+reset/50 || remaining == 0 && off > 0 {
			return p.window
		}
		return 0
	case missing <= 0 || missed <= 0 || math.Abs(missing-missed) < missing/8:
		return 0
	}
	window := seconds(l.Reset.Seconds() / missing * float64(l.Quota))
	before := seconds(p.reset.Seconds() / missed * float64(l.Quota))
	if (window - before).Abs() > window/50 {
		return 0
	}
	return window
}

// fills reports whether p is a bucket, whose level can be computed.
func (p *policy) fills() bool { return p.refill == steadily || p.refill == inQueue }

// flow returns how many units a bucket gets per second.
func (p *policy) flow() float64 { return float64(p.quota) / p.window.Seconds() }

// reserve returns the units to leave for other clients.
func (p *policy) reserve(now time.Time) float64 {
	if p.others.IsZero() || now.Sub(p.others) > p.window {
		return 0
	}
	return max(1, othersPart*float64(p.quota))
}

// cost returns what a request takes of p, 0 if that is unknown. What is only estimated is
// no more than p ever has.
func (p *policy) cost(c costs) int64 {
	n := c.of(p.id.unit)
	if p.quota > 0 && !c.known(p.id.unit) {
		n = min(n, p.quota)
	}
	return n
}

func (p *policy) demand() *demand { return &p.waiters }

func (p *policy) idle(time.Time) {}

// delay returns how long n units must wait behind others.
func (p *policy) delay(n, ahead int64, now time.Time) time.Duration {
	switch {
	case now.Sub(p.at) > maxAge:
		return 0
	case n == 0 && p.left > 0 || n == 0 && p.refill == unmeasured:
		return 0 // unknown cost: wait only if nothing is left
	}
	switch {
	case p.refill == unmeasured:
		return max(0, p.last.Add(p.refillTime(ahead+n)).Sub(now))
	case p.fills():
		return p.waitForLevel(n, ahead, now)
	}
	return p.waitForShare(n, ahead, now)
}

// due is delay for the first waiter, which may be a probe if nothing is left for long.
func (p *policy) due(n int64, now time.Time) time.Duration {
	d := p.delay(n, 0, now)
	if d > probeInterval && (p.refill == unmeasured || p.level(now) < 1) {
		d = min(d, max(0, p.last.Add(probeInterval).Sub(now)))
	}
	return d
}

// least returns how long any request must wait that costs something: not at all if
// something is left, or if an answer may come that says so.
func (p *policy) least(now time.Time) time.Duration {
	n := p.cost(nil)
	if p.spare(nil, 0, now) || p.refill != unmeasured && !p.fills() && !p.until.After(now) {
		return 0
	}
	return p.due(n, now)
}

// refillTime returns the average time in which n units come back.
func (p *policy) refillTime(n int64) time.Duration {
	if p.quota <= 0 || n <= 0 {
		return 0
	}
	return seconds(float64(n) / float64(p.quota) * p.window.Seconds())
}

// level returns how many units are left. In a bucket it includes those that have come
// back.
func (p *policy) level(now time.Time) float64 {
	if !p.fills() {
		return p.left
	}
	return min(p.left+p.flow()*now.Sub(p.since).Seconds(), float64(p.burst))
}

// waitForLevel returns the time until a bucket holds n units for this request, those for
// others ahead, and a reserve.
func (p *policy) waitForLevel(n, ahead int64, now time.Time) time.Duration {
	// Leave one unit for other clients, which are not detected before they take it; but a
	// bucket of fewer than four is too small for that.
	reserve := min(max(1, p.reserve(now)), float64(p.burst/4))
	if p.refill == inQueue {
		reserve = leakyPart * float64(p.burst)
	}
	need := min(float64(max(n, 1))+reserve, float64(p.burst)) + float64(ahead)
	missing := need - p.level(now)
	if missing <= 0 {
		return 0
	}
	return seconds(missing / p.flow())
}

// waitForShare returns the time until n units may be used if what is left is spread evenly:
// with n units left for a period, the first goes after one (n+1)-th of it, and the first
// of the next period goes at its end.
func (p *policy) waitForShare(n, ahead int64, now time.Time) time.Duration {
	renewal, left := p.until.Sub(now), p.left-float64(ahead)
	if p.refill == atOnce {
		left -= p.reserve(now)
	}
	switch {
	case left > freePart*float64(p.quota) && p.quota > 0:
		return 0
	case renewal <= 0:
		return p.waitForAnswer(ahead, now)
	case p.refill == oneByOne && left >= 1 && left < float64(n):
		// The rest comes back before all does; nobody knows when, so try seldom.
		return max(0, later(p.at, p.last).Add(max(p.window/4, p.refillTime(ahead+n-int64(left)))).Sub(now))
	case left < float64(max(n, 1)): // the next period has to give what is missing
		return renewal + p.refillTime(ahead+n-1-int64(max(0, p.left)))
	}
	start := later(p.at, p.last)
	horizon := p.until.Sub(start)
	if p.refill == oneByOne {
		horizon = min(horizon, p.part())
	}
	due := start.Add(seconds(float64(ahead+n) / (left + float64(ahead) + 1) * horizon.Seconds()))
	return min(max(0, due.Sub(now)), renewal)
}

// waitForAnswer returns the time until a request may go when the state has expired. One
// request asks for the new state, and the others wait for its answer.
func (p *policy) waitForAnswer(ahead int64, now time.Time) time.Duration {
	wait := max(minAnswerWait, 2*p.latency) // with slow answers, no sooner than one can arrive
	if p.asked.IsZero() {
		if ahead == 0 {
			return 0
		}
		return wait
	}
	return max(0, p.asked.Add(wait).Sub(now))
}

// spare reports whether a request that cannot wait may take its units: some are left, or
// come back now, or a probe is due. An estimate refuses nothing while anything is left.
func (p *policy) spare(c costs, ahead int64, now time.Time) bool {
	n := max(p.cost(c), 1)
	if !c.known(p.id.unit) {
		n, ahead = 1, 0
	}
	switch {
	case p.refill == unmeasured:
	case !p.fills() && !p.until.After(now): // how much of a new quota is left is unknown
		return p.quota == 0 || p.underway+ahead+n <= p.quota
	case p.level(now) >= float64(ahead+n):
		return true
	}
	return now.Sub(p.last) >= probeInterval
}

func (p *policy) take(n int64, now time.Time) (before int64) {
	p.left, p.since = p.level(now)-float64(n), now
	if now.After(p.counted) {
		p.counted, p.before = now, p.sum
	}
	p.sum += n
	p.underway += n
	if n > 0 { // a request of unknown cost must not delay those of known cost
		p.last = now
	}
	if !p.until.After(now) {
		p.asked = now
	}
	return p.before
}

func (p *policy) giveBack(n int64, now time.Time) {
	p.left += float64(n)
	p.sum -= n
	p.underway -= n
	p.asked = time.Time{}
}

// seconds returns s as a Duration, at most maxAge.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, maxAge.Seconds()) * float64(time.Second))
}
