package pace

import (
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	// freePart is the part of a quota: while more than that is left nobody is delayed. A client
	// that uses less than a quarter of its quota in a window never notices that there is one.
	freePart = 0.75

	// slidingParts is into how many parts a window is divided whose units come back one by one:
	// what is left is spread over one of them. In the long run all but 1/17 of such a quota
	// is used, and that is left for others who use it, too.
	slidingParts = 16

	// othersPart is the part of a quota that is left for others who are seen to use it, too.
	othersPart = 1. / 16

	// leakyPart is the part of a leaky bucket that is left unused: what is sent early to a
	// leaky bucket waits there.
	leakyPart = 0.95

	// longestBelief is how long what was told once is believed, whatever it was.
	longestBelief = 24 * time.Hour

	// askAgain is how long others wait at least for the answer of a request that asks what is left.
	askAgain = time.Second

	// probeInterval is how often a request goes although nothing is left, where that is to
	// be so for longer than this. A server that was wrong once must not be lost for a day.
	probeInterval = time.Minute

	// secondsError is by how much a time is off that is told in whole seconds.
	secondsError = time.Second

	// mostLeft bounds the units that are believed to be left, so that no sum of them overflows.
	mostLeft = 1 << 50
)

// A policyID tells policies of a key apart.
type policyID struct {
	name, unit, partition string
	limit                 string // what the vendor calls it
	quota                 int64
	window                time.Duration
}

// A policy is a limit as its server has told it. It is a gate: what is left is spread over
// the time that is left. Callers hold the lock of its line.
type policy struct {
	waiters waiting
	id      policyID
	routes  int // how many routes are told of it

	quota  int64
	window time.Duration // or the longest time that was left; 0 if unknown
	refill refill

	remaining int64     // what was left in the newest answer
	at        time.Time // when that came
	until     time.Time // when what is left is told to be renewed
	left      float64   // remaining, less what was taken since; of a bucket, with what came back
	since     time.Time // when left was counted
	burst     int64     // the most that was ever left: a bucket holds no more, as far as is known
	others    time.Time // when it was last seen that others use the policy, too

	sum      int64 // units that were ever taken
	before   int64 // sum, before those that were taken at the moment counted
	counted  time.Time
	underway int64         // units of requests that have not been answered
	latency  time.Duration // of the newest answer
	last     time.Time     // when units were taken
	asked    time.Time     // when a request went to see what there is after until
}

// A refill is how units come back.
type refill int

const (
	atOnce     refill = iota // all of them, at until
	oneByOne                 // a window after they were spent, or about so
	steadily                 // quota in a window, up to burst
	inQueue                  // steadily, but what was admitted waits for its turn
	unmeasured               // steadily, and nobody tells what is left
)

// useful reports whether anything follows from l.
func useful(l *ratelimit.Limit) bool {
	if l.Remaining < 0 {
		return l.Quota > 0 && l.Window > 0
	}
	return l.Next >= 0 || l.Reset >= 0 || l.Window > 0
}

// refillOf is how the units of l come back, as far as l tells it.
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

// timeLeft is for how long what l tells is true.
func (p *policy) timeLeft(l *ratelimit.Limit) time.Duration {
	d := max(l.Next, l.Reset)
	switch {
	case p.refill == oneByOne && l.Remaining > 0:
		d = max(d, p.window) // before, only some come back
	case p.refill == oneByOne && l.Next > 0:
		d = max(l.Next, p.part()) // when the next one comes back, there would be just that one
	case d < 0:
		d = l.Window
	}
	return min(d, longestBelief)
}

// part is over how long what is left is spread where units come back one by one.
func (p *policy) part() time.Duration { return p.window / slidingParts }

// An answer is what a response tells of a policy.
type answer struct {
	*ratelimit.Limit
	sent     time.Time // when its request was sent
	own      int64     // units that this took
	later    int64     // units that were taken with or after it: they are not in what remains
	underway int64     // units of other requests that are not answered yet: they may be in it or not
}

// learn takes over what an answer tells.
func (p *policy) learn(a answer, now time.Time) {
	remaining := min(a.Remaining, mostLeft)
	// An answer is newer than the one before if it was not under way with that. Those that
	// were come in any order.
	newer := a.sent.After(p.at)
	level := p.level(now)
	p.watch(a, remaining, newer, now)
	p.quota, p.burst = a.Quota, max(p.burst, remaining+a.own)
	until := now.Add(p.timeLeft(a.Limit))
	if p.fills() {
		p.left = float64(remaining-a.later) + p.flow()*now.Sub(a.sent).Seconds()
		if !newer {
			p.left = min(p.left, level)
		}
	} else {
		// In one period there is no more than was told before.
		if same := p.refill == atOnce && until.Sub(p.until) < p.window/2; same && !newer {
			remaining = min(remaining, p.remaining)
		}
		p.left = float64(remaining - a.underway)
	}
	p.since, p.remaining, p.at, p.until, p.asked = now, remaining, now, until, time.Time{}
	p.latency = now.Sub(a.sent)
}

// watch sees from one answer to the next how units come back, how long that takes, and whether
// others use them.
func (p *policy) watch(a answer, remaining int64, newer bool, now time.Time) {
	known := newer && !p.at.IsZero()
	// In one period the end stays about where it was; with a new one it moves by a window.
	longer := max(a.Next, a.Reset) - p.until.Sub(now)
	early := known && remaining > p.remaining && p.until.Sub(now) > secondsError && longer.Abs() < p.window/2
	kind := refillOf(a.Limit)
	if kind == atOnce && (early || p.refill == oneByOne) {
		kind = oneByOne
	}
	switch {
	case a.Window > 0:
		p.window = a.Window
	case known && -longer > p.window/2: // it contradicts what was told before
		kind, p.window = refillOf(a.Limit), a.Reset
	default:
		p.window = max(p.window, a.Reset)
	}
	p.refill = kind
	if known && a.own > 0 && remaining < p.remaining-a.own-a.underway {
		p.others = now
	}
}

// fills reports whether the policy is a bucket, and so what comes back is known.
func (p *policy) fills() bool { return p.refill == steadily || p.refill == inQueue }

// flow is how many units a bucket gets in a second.
func (p *policy) flow() float64 { return float64(p.quota) / p.window.Seconds() }

// reserve is what is not spent, for others.
func (p *policy) reserve(now time.Time) float64 {
	if p.others.IsZero() || now.Sub(p.others) > p.window {
		return 0
	}
	return max(1, othersPart*float64(p.quota))
}

// cost is what a request takes of p: nobody knows how many tokens if it is not said.
func (p *policy) cost(c costs) int64 { return c.of(p.id.unit) }

func (p *policy) waiting() *waiting { return &p.waiters }

func (p *policy) rest(time.Time) {}

// delay is how long n units must wait behind others.
func (p *policy) delay(n, ahead int64, now time.Time) time.Duration {
	switch {
	case now.Sub(p.at) > longestBelief:
		return 0
	case n == 0 && p.left > 0 || n == 0 && p.refill == unmeasured:
		return 0 // what it costs is not known: it waits if nothing is left
	}
	switch {
	case p.refill == unmeasured:
		return max(0, p.last.Add(p.refillTime(ahead+n)).Sub(now))
	case p.fills():
		return p.waitForLevel(n, ahead, now)
	}
	return p.waitForShare(n, ahead, now)
}

// due is delay for the first in line, which may be a probe if nothing is left for long.
func (p *policy) due(n int64, now time.Time) time.Duration {
	d := p.delay(n, 0, now)
	if d > probeInterval && (p.refill == unmeasured || p.level(now) < 1) {
		d = min(d, max(0, p.last.Add(probeInterval).Sub(now)))
	}
	return d
}

// refillTime is in how long n units come back on average.
func (p *policy) refillTime(n int64) time.Duration {
	if p.quota <= 0 || n <= 0 {
		return 0
	}
	return seconds(float64(n) / float64(p.quota) * p.window.Seconds())
}

// level is how many units are left, of a bucket with those that have come back.
func (p *policy) level(now time.Time) float64 {
	if !p.fills() {
		return p.left
	}
	return min(p.left+p.flow()*now.Sub(p.since).Seconds(), float64(p.burst))
}

// waitForLevel is how long it is until a bucket holds n units for this request, those for
// others ahead, and a reserve.
func (p *policy) waitForLevel(n, ahead int64, now time.Time) time.Duration {
	// One unit is left for others, who are not seen before they have taken it; but a bucket of
	// fewer than four is too small for that.
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

// waitForShare is how long it is until n units may be spent if what is left is spread evenly:
// with n units left for a period, the first of them is spent one (n+1)-th of it from now,
// and with the end of the period the first of the next.
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
	case left < float64(max(n, 1)):
		return renewal + p.refillTime(ahead+n-1-int64(max(0, p.left)))
	}
	begin := later(p.at, p.last)
	horizon := p.until.Sub(begin)
	if p.refill == oneByOne {
		horizon = min(horizon, p.part())
	}
	due := begin.Add(seconds(float64(ahead+n) / (left + float64(ahead) + 1) * horizon.Seconds()))
	return min(max(0, due.Sub(now)), renewal)
}

// waitForAnswer is how long it is until a request may go when what was told is over: one
// goes to see what there is now, and the others wait for its answer.
func (p *policy) waitForAnswer(ahead int64, now time.Time) time.Duration {
	wait := max(askAgain, 2*p.latency) // where answers are late, no sooner than one can be there
	if p.asked.IsZero() {
		if ahead == 0 {
			return 0
		}
		return wait
	}
	return max(0, p.asked.Add(wait).Sub(now))
}

// spare reports whether n units are left for a request that cannot wait: something is left, or
// is again, or it is time for a probe.
func (p *policy) spare(n, ahead int64, now time.Time) bool {
	n = max(n, 1)
	switch {
	case p.refill == unmeasured:
	case !p.fills() && !p.until.After(now): // nobody knows how much of a new quota is left
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
	if n > 0 { // a request whose cost is not known must not put off those whose is
		p.last = now
	}
	if !p.until.After(now) {
		p.asked = now
	}
	return p.before
}

func (p *policy) giveBack(n int64, now time.Time) {
	p.left += float64(n)
	p.underway -= n
	p.asked = time.Time{}
}

// seconds is s as a Duration, at most longestBelief: no server is waited for longer.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, longestBelief.Seconds()) * float64(time.Second))
}
