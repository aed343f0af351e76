package heed

import (
	"cmp"
	"math/bits"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/adaptive"
	"github.com/heedhttp/heed/ratelimit"
)

// A coolDown is one key's: closed until a time, and then the line of those who waited.
//
//   - A request waits only as long as it may: where its turn cannot come in time, it is
//     refused at once.
//   - While a minute or more is left, one request a minute goes as a probe instead of being
//     refused. What it is told replaces what was told before.
//   - The line is released over the jitter window, evenly, so that neither its requests nor
//     those of other processes come all at once; after that, as fast as good answers come.
//   - If the server is known to admit one request an interval, they are released at that
//     interval, unless the server says that there is room for more.
//   - The line is bounded.
//
// A key whose requests are refused without a word about when to come back has a throttle
// instead: the line is then released at a rate that is searched for.
//
// Its methods take the time, and never block.
type coolDown struct {
	state atomic.Int32 // open, counting or closed

	mu      sync.Mutex // guards what follows
	round   int        // which closure this is: a request sent in an earlier one says nothing of it
	until   time.Duration
	window  time.Duration // the jitter window, which begins at until
	asked   time.Duration // when the server last told, or a probe was last sent
	onBoard bool          // a Board was read that has this closure
	line    []*waiter     // sorted by precedes

	// The release of the line.
	begun      bool
	from       time.Duration // before which nobody goes
	last       time.Duration // when the last one went, or was due
	places     int           // that are left in the window
	place      time.Duration // between two of them
	unanswered int           // of those that went in this round
	answered   int
	interval   interval
	throttle   throttle
}

// States of a coolDown.
const (
	open     = iota // nobody waits, and nothing is counted
	counting        // nobody waits, but answers are counted: lately one was a refusal without a hint
	closed          // each request asks whether it may go
)

const (
	longestCoolDown = 24 * time.Hour // where a wait saturates: no server means longer
	longestInterval = time.Minute    // that is believed
	longestLine     = 10_000
	probeEvery      = time.Minute

	// A response that never comes must not hold up the line.
	longestSilence = time.Second

	// Timers are late, and so is a busy machine: what is released late by less than this
	// does not make the next one late.
	lateness = 10 * time.Millisecond

	// A coolDown that the server's answers still inform is kept for so long after the
	// last request that had to wait.
	quiet = 10 * time.Second
)

// jitterWindow is the range of the jitter after a hint: wide enough to tell many
// waiters apart, narrow enough not to be noticed beside the hint.
func jitterWindow(hint time.Duration) time.Duration { return min(hint/10*3, 10*time.Second) }

// A waiter is a request in line.
type waiter struct {
	attempts int           // that were made of it
	called   time.Duration // when RoundTrip was
	since    time.Duration // when its wait began
	most     time.Duration // RetryPolicy.MaxWait
	bound    time.Duration // its deadline, or the end of its MaxElapsed
	wake     chan struct{} // it is to ask again
}

// precedes orders the line: those with the fewest attempts left go first, so that none
// runs out of attempts while others have theirs before them; then those called first.
func (w *waiter) precedes(v *waiter) int {
	return cmp.Or(cmp.Compare(v.attempts, w.attempts), cmp.Compare(w.called, v.called))
}

// latest is when w is to be released at the latest: the jitter window comes on top of the
// longest wait, unless there is to be no waiting at all.
func (w *waiter) latest(window time.Duration) time.Duration {
	if w.most <= 0 {
		return min(w.since, w.bound)
	}
	return min(after(after(w.since, w.most), window), w.bound)
}

// after is t+d, or the end of time.
func after(t, d time.Duration) time.Duration {
	if d > maxDuration-t {
		return maxDuration
	}
	return t + d
}

// A permit lets one request go. The zero permit is that of a request that met no cool-down.
type permit struct {
	c     *coolDown
	round int
	probe bool
}

// open reports that req need not wait, nor be counted as released.
func (c *coolDown) open(req *http.Request, now time.Duration) bool {
	if c.state.Load() != closed {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overLocked(now) {
		c.openLocked(now)
	}
	return c.state.Load() != closed ||
		c.throttle.on && now >= c.until && !c.interval.believed && c.throttle.spares(routeOf(req), now)
}

// idle reports that a new coolDown would do as well.
func (c *coolDown) idle(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overLocked(now) && !c.throttle.counts(now)
}

// overLocked reports that it ended so long ago that those who waited for it, here and in
// other processes, have gone.
func (c *coolDown) overLocked(now time.Duration) bool {
	if len(c.line) > 0 {
		return false
	}
	end := max(c.until+c.window, c.from, c.last+longestSilence)
	switch {
	case c.throttle.on:
		end = max(end, c.throttle.held+quiet)
	case c.interval.believed && c.interval.reported:
		end = max(end, c.last+quiet)
	case c.interval.believed:
		end = max(end, c.last+c.interval.every)
	}
	return now > end
}

func (c *coolDown) openLocked(now time.Duration) {
	c.interval, c.throttle.on = interval{}, false
	if c.throttle.counts(now) {
		c.state.Store(counting)
		return
	}
	c.throttle.routes = nil
	c.state.Store(open)
}

// read reports what is left, and the interval.
func (c *coolDown) read(now time.Duration) (wait, every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == closed && !c.overLocked(now) && c.interval.believed {
		every = c.interval.every
	}
	return max(0, c.until-now), every
}

// post closes the key for so long. A wait that is over before an earlier one only adds
// its interval.
func (c *coolDown) post(now, wait time.Duration, i interval) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.postLocked(now, wait, i)
}

func (c *coolDown) postLocked(now, wait time.Duration, i interval) {
	if c.state.Load() != closed || c.overLocked(now) {
		c.openLocked(now) // what was told before has nothing to do with this
	}
	c.interval.add(i)
	if end := now + min(wait, longestCoolDown); end > c.until {
		c.closeLocked(now, end, wait)
	}
}

// replace closes the key for so long, whatever was told before, or opens it.
func (c *coolDown) replace(now, wait time.Duration, i interval) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceLocked(now, wait, i)
}

func (c *coolDown) replaceLocked(now, wait time.Duration, i interval) {
	if c.state.Load() != closed {
		return
	}
	wait = min(max(0, wait), longestCoolDown)
	c.interval = i
	c.closeLocked(now, now+wait, wait)
}

// posted notes whether a Board has this closure as well.
func (c *coolDown) posted(onBoard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBoard = c.onBoard || onBoard
}

func (c *coolDown) closeLocked(now, until, wait time.Duration) {
	c.until, c.window, c.asked = until, jitterWindow(wait), now
	c.round++
	c.onBoard = false
	c.begun, c.from, c.last, c.unanswered, c.answered = false, 0, 0, 0, 0
	c.state.Store(closed)
	c.wakeLateLocked(0, now)
	c.wakeNextLocked()
}

// follow is what a Board says that others post to as well: read again and again, the same
// cool-down ends a little later or earlier each time, and the interval grows with the
// number of those who share it. A Board that can be replaced shortens what it is known to
// have had, but not what it has not heard of yet.
func (c *coolDown) follow(now, wait, every time.Duration, replaceable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.until - now
	same := wait > 0 && c.state.Load() == closed && max(wait-left, left-wait) < time.Second
	switch {
	case same:
		c.until = max(c.until, now+wait) // by another clock
	case wait > max(0, left):
		c.postLocked(now, wait, interval{})
		same = true
	case c.state.Load() != closed:
		return // nobody has waited here: who comes after the end need not
	case replaceable && c.onBoard && wait < left:
		c.replaceLocked(now, wait, interval{})
		same = true
	}
	c.onBoard = c.onBoard || same
	c.interval.add(boardInterval(every))
	if every > 0 && !c.begun {
		c.window = 0 // the Board has spread those who share it already
	}
	c.wakeLateLocked(0, now)
}

// probe reports whether a request may go although the key is closed for more than a minute:
// one a minute since the server last told, or was last probed.
func (c *coolDown) probe(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until-now < probeEvery || now-c.asked < probeEvery {
		return false
	}
	c.asked = now
	return true
}

// permitProbe is the permit of a probe.
func (c *coolDown) permitProbe() permit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return permit{c, c.round, true}
}

// join puts w in line, unless that is full.
func (c *coolDown) join(w *waiter, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) >= longestLine {
		return false
	}
	at, _ := slices.BinarySearchFunc(c.line, w, func(v, w *waiter) int { return cmp.Or(v.precedes(w), -1) })
	c.line = slices.Insert(c.line, at, w)
	if at+1 < len(c.line) && c.interval.believed {
		c.wakeLateLocked(at+1, now) // those behind w wait longer now
	}
	return true
}

// leave takes w out of line, if it is still there.
func (c *coolDown) leave(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.line, w); at >= 0 {
		c.line = slices.Delete(c.line, at, at+1)
		c.wakeNextLocked()
	}
}

// A standing is that of a waiter: it has a permit, or it waits, or it waits too long.
type standing struct {
	permit permit
	round  int
	wait   time.Duration // until it is released, as far as that is known
	again  time.Duration // in which it asks again at the latest
	late   bool          // that is later than it may be
	most   bool          // because of RetryPolicy.MaxWait
}

// ask reports whether w, which is in line, may go.
func (c *coolDown) ask(w *waiter, now time.Duration) standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.line, w)
	next := at == c.nextLocked()
	if next && c.readyLocked(now) {
		return standing{permit: c.releaseLocked(at, now)}
	}
	t := standing{round: c.round, wait: c.expectedLocked(at, now) - now}
	if t.late = c.lateLocked(w, at, now); t.late {
		t.most = w.latest(c.window) < w.bound || c.until > after(w.since, w.most)
		return t
	}
	t.again = w.latest(c.window) - now
	if next {
		t.again = min(t.again, c.readyAtLocked(now)-now)
	}
	return t
}

// lateLocked reports that the waiter in that place is released too late.
func (c *coolDown) lateLocked(w *waiter, at int, now time.Duration) bool {
	latest := w.latest(c.window)
	return now >= latest || c.until > after(w.since, w.most) || c.earliestLocked(at, now) > latest
}

// earliestLocked is the earliest time at which the waiter in that place is released: a
// place in the jitter window, or the rate of a throttle, is no more than a guess.
func (c *coolDown) earliestLocked(at int, now time.Duration) time.Duration {
	start := max(now, c.dueLocked(now))
	if c.throttle.on || !c.interval.believed {
		return start
	}
	return start + time.Duration(max(0, at-max(0, int(c.interval.left))))*c.interval.every
}

// expectedLocked is when that is going to be.
func (c *coolDown) expectedLocked(at int, now time.Duration) time.Duration {
	start := c.earliestLocked(at, now)
	if c.throttle.on {
		return start + time.Duration(at)*c.throttle.interval()
	}
	return start
}

// nextLocked is the place of the one that goes next: the first, but the last while the
// server refuses all, since that one has the most attempts left to lose.
func (c *coolDown) nextLocked() int {
	if c.throttle.refusing() {
		return len(c.line) - 1
	}
	return 0
}

// readyLocked reports whether the next one may go now.
func (c *coolDown) readyLocked(now time.Duration) bool { return now >= c.readyAtLocked(now) }

// readyAtLocked is when the next one may go if no answer comes before.
func (c *coolDown) readyAtLocked(now time.Duration) time.Duration {
	at := c.dueLocked(now)
	if c.unanswered > c.answered && !c.interval.believed && !c.throttle.on {
		at = max(at, c.last+longestSilence)
	}
	return at
}

// dueLocked is when the next one may go, whatever is unanswered.
func (c *coolDown) dueLocked(now time.Duration) time.Duration {
	if now < c.until {
		return c.until
	}
	c.beginLocked()
	return max(c.from, c.last+c.spacingLocked(now))
}

// beginLocked gives each of the line a place in the jitter window, the first one a random
// part of the first place.
func (c *coolDown) beginLocked() {
	if c.begun {
		return
	}
	c.begun, c.places = true, max(1, len(c.line))
	c.place = c.window / time.Duration(c.places)
	c.from = max(c.from, c.until+uniform(c.place))
}

// spacingLocked is the time between two releases.
func (c *coolDown) spacingLocked(now time.Duration) (gap time.Duration) {
	if c.places > 0 && now < c.until+c.window {
		gap = c.place
	}
	switch {
	case c.throttle.on:
		return max(gap, c.throttle.interval())
	case c.interval.believed && c.interval.left <= 0:
		return max(gap, c.interval.every)
	}
	return gap
}

func (c *coolDown) releaseLocked(at int, now time.Duration) permit {
	w, due := c.line[at], c.dueLocked(now)
	c.line = slices.Delete(c.line, at, at+1)
	c.last = now
	if w.since < due {
		c.throttle.held = now
		if !c.throttle.on { // its server may bear no two requests that come close together
			c.last = max(due, now-lateness)
		}
	}
	c.unanswered++
	c.places--
	c.interval.left--
	c.wakeNextLocked()
	return permit{c: c, round: c.round}
}

func (c *coolDown) wakeNextLocked() {
	if len(c.line) > 0 {
		c.line[c.nextLocked()].awake()
	}
}

// wakeLateLocked wakes those of the line that will not be released in time, from a place on.
func (c *coolDown) wakeLateLocked(from int, now time.Duration) {
	for at, w := range c.line[from:] {
		if c.lateLocked(w, from+at, now) {
			w.awake()
		}
	}
}

func (w *waiter) awake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stale reports that the key was closed since p was given.
func (p permit) stale() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.round != p.round
}

// An answer is what a coolDown learns from.
type answer struct {
	route   string
	sent    time.Duration
	failed  bool              // there was none
	refused bool              // because of a limit
	plain   bool              // and the server did not say for how long
	limits  []ratelimit.Limit // that it told
}

// answer says what came of a request that was sent with p. It reports whether the key has
// a throttle.
func (c *coolDown) answer(p permit, a answer, now time.Duration) (throttled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == counting && !c.throttle.counts(now) && !a.plain {
		c.openLocked(now)
		return false
	}
	if c.throttle.count(a, len(c.line) > 0 || now-c.throttle.held < time.Second, now) {
		c.throttleLocked(now)
	}
	if p.c != nil && p.round == c.round && !p.probe {
		c.answerLocked(a, now)
	}
	c.wakeNextLocked()
	return c.throttle.on
}

func (c *coolDown) answerLocked(a answer, now time.Duration) {
	c.unanswered--
	if a.refused {
		return
	}
	c.answered++
	c.interval.learn(a, c.unanswered+min(1, len(c.line)))
	if !c.interval.reported && now-c.asked >= longestInterval {
		c.interval = interval{} // nothing bears it out
	}
	if c.interval.believed {
		c.wakeLateLocked(0, now)
	} else if len(c.line) == 0 && !c.throttle.on {
		c.openLocked(now)
	}
}

// unused takes back a permit of which nothing was learnt.
func (c *coolDown) unused(p permit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.round == c.round && !p.probe {
		c.unanswered--
		c.wakeNextLocked()
	}
}

// throttleLocked has requests wait, for a moment in which the server may recover, and then
// for the rate.
func (c *coolDown) throttleLocked(now time.Duration) {
	c.throttle.start(now)
	c.begun, c.from, c.last, c.places = true, max(c.until, c.throttle.resumes), 0, 0
	c.state.Store(closed)
	c.wakeLateLocked(0, now)
}

// startCounting has answers be counted from now on: one was a refusal without a hint.
func (c *coolDown) startCounting() { c.state.CompareAndSwap(open, counting) }

// closedFor is how long nobody goes.
func (c *coolDown) closedFor(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != closed {
		return 0
	}
	return max(0, c.until-now, c.from-now)
}

// An interval is that at which a server admits requests, unless it counts in fixed windows:
// what is used of one comes back all at once.
type interval struct {
	policy   string // as the server calls it, with its partition
	quota    int64
	every    time.Duration
	believed bool          // the server says that it counts so, or its answers show it
	reported bool          // its answers tell what is left
	left     int64         // what the newest one told, less what was sent since
	sent     time.Duration // when its request was
}

// boardInterval is one that a Board tells.
func boardInterval(every time.Duration) interval {
	if every <= 0 {
		return interval{}
	}
	return interval{every: min(every, longestCoolDown), believed: true}
}

// intervalOf is the longest of the policies that a response says are exhausted. One that is
// longer than a minute is no reason to be slow for hours.
func intervalOf(h http.Header) (i interval) {
	for _, l := range ratelimit.Parse(h, time.Time{}) {
		if l.Remaining != 0 || l.Quota <= 0 || l.Window <= 0 || l.Unit != "" || l.Algorithm == ratelimit.FixedWindow {
			continue // of tokens or bytes it is not known how many a request takes
		}
		every := l.Window / time.Duration(l.Quota)
		if every > longestInterval || l.Next < 0 || l.Next > 2*every+time.Second {
			continue // its next unit is too far away for a bucket's
		}
		i.add(interval{
			policy: policyOf(l), quota: l.Quota, every: every,
			believed: l.Algorithm != 0,
		})
	}
	return i
}

func policyOf(l ratelimit.Limit) string { return l.Name + "\x00" + l.Partition }

// add keeps the longer interval, but one that is believed rather than one that is not, and
// the newer of one policy.
func (i *interval) add(other interval) {
	switch {
	case other.every <= 0:
	case i.every == 0, other.policy == i.policy && other.policy != "",
		other.believed && !i.believed, other.believed == i.believed && other.every > i.every:
		*i = other
	}
}

// learn takes note of what is left, as a good answer tells it, less what is not to be used:
// what requests under way need and, while others wait, one unit, so that a server that counts
// a little more, or a network that brings two at once, does not refuse. An interval was a guess until here: a bucket has
// little right after it was empty, and a new window nearly all.
func (i *interval) learn(a answer, reserve int) {
	if i.every == 0 {
		return
	}
	least := int64(-1)
	for _, l := range a.limits {
		if l.Unit != "" || l.Remaining < 0 {
			continue
		}
		if least < 0 || l.Remaining < least {
			least = l.Remaining
		}
		if !i.believed && policyOf(l) == i.policy {
			i.believed = l.Remaining < i.quota/2
			if !i.believed {
				*i = interval{}
				return
			}
		}
	}
	if i.reported = least >= 0; !i.reported {
		return
	}
	left := least - int64(reserve)
	if a.sent <= i.sent { // answers overtake each other: an older one may tell less, but not more
		left = min(left, i.left)
	}
	i.left, i.sent = left, max(i.sent, a.sent)
}

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
	routes    map[string]*route // since the counting began

	best    int           // good answers in one second
	recent  uint32        // of the last answers at a low rate, the newest first: whether each was a refusal
	ended   time.Duration // when it last did because it was of no use
	atLeast time.Duration // for how long it must last before it may end so again
}

// A route is what is known of one.
type route struct {
	answers   int
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

	fewestAnswers = 3   // that a route must have had to be spared
	mostRoutes    = 100 // that are known

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
	r.answers++
	if a.refused {
		r.refusedAt = now
	}
}

// spares reports that a route has had good answers, and lately no other.
func (t *throttle) spares(name string, now time.Duration) bool {
	r := t.routes[name]
	return r != nil && r.answers >= fewestAnswers && (r.refusedAt == 0 || now-r.refusedAt >= countFor)
}
