package heed

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A coolDown is the state of one key: nobody goes until a time; after that, those who waited
// are released one by one.
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
// A key whose requests are refused without a word about when to come back has a throttle:
// its line is released at a rate that is searched for.
//
// Methods are told the time, and never block.
type coolDown struct {
	state atomic.Int32 // open, counting or closed

	mu      sync.Mutex    // guards what follows
	round   int           // the number of closures: an answer to a request sent before the last one says nothing of it
	until   time.Duration // nobody goes before, but a probe
	window  time.Duration // the jitter window, which begins at until
	asked   time.Duration // when the server last said so, or a probe was last sent
	onBoard bool          // a Board that others post to has this closure, too
	line    []*waiter     // sorted by compare, the first goes first

	// The release of the line, after until.
	begun      bool          // slots and from are set
	from       time.Duration // the first release, at the earliest
	last       time.Duration // when the last one was, or was due
	slots      int           // how many slots in the jitter window are left
	slotGap    time.Duration // between two of them
	unanswered int           // how many requests of this round are under way
	answered   int           // how many were answered, and not refused
	interval   interval
	throttle   throttle
}

// States of a coolDown.
const (
	stateOpen     = iota // nobody waits, and nothing is counted
	stateCounting        // nobody waits, but answers are counted: lately one was a refusal without a hint
	stateClosed          // each request asks whether it may go
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

// jitterWindow is the range of the jitter after a hint, three tenths of it: wide enough to tell many
// waiters apart, narrow enough not to be noticed beside the hint.
func jitterWindow(hint time.Duration) time.Duration { return min(hint/10*3, 10*time.Second) }

// A waiter is a request in line.
type waiter struct {
	attempts int           // that were made of it
	called   time.Duration // when RoundTrip was called
	since    time.Duration // when its wait began
	most     time.Duration // RetryPolicy.MaxWait
	bound    time.Duration // its deadline, or the end of its MaxElapsed
	wake     chan struct{} // receives when the waiter is to ask again
}

// compare is negative if w goes before v: the one that was sent more often, so that none runs
// out of attempts while others have theirs before them, and then the one called first.
func (w *waiter) compare(v *waiter) int {
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

// after is t+d, saturated.
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
	if c.state.Load() != stateClosed {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overLocked(now) {
		c.openLocked(now)
	}
	return c.state.Load() != stateClosed ||
		c.throttle.on && now >= c.until && !c.interval.believed && c.throttle.spares(scope.Route(req), now)
}

// idle reports that c holds nothing worth keeping.
func (c *coolDown) idle(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overLocked(now) && !c.throttle.counts(now)
}

// overLocked reports that the cool-down ended so long ago that no request waits for it any
// more, here or in another process, and that the server's answers inform it no longer.
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
		c.state.Store(stateCounting)
		return
	}
	c.throttle.routes = nil
	c.state.Store(stateOpen)
}

// read reports what is left, and the interval.
func (c *coolDown) read(now time.Duration) (wait, every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == stateClosed && !c.overLocked(now) && c.interval.believed {
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
	if c.state.Load() != stateClosed || c.overLocked(now) {
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
	if c.state.Load() != stateClosed {
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
	c.state.Store(stateClosed)
	c.wakeLateLocked(0, now)
	c.wakeNextLocked()
}

// follow applies what was read from a Board that others post to as well. By its clock the same
// cool-down ends a little later or earlier with each reading, and its interval grows with the
// number of processes. A ProbeBoard may shorten a closure that it has, but not one that it does
// not know yet.
func (c *coolDown) follow(now, wait, every time.Duration, replaceable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.until - now
	same := wait > 0 && c.state.Load() == stateClosed && max(wait-left, left-wait) < time.Second
	switch {
	case same:
		c.until = max(c.until, now+wait) // by another clock
	case wait > max(0, left):
		c.postLocked(now, wait, interval{})
		same = true
	case c.state.Load() != stateClosed:
		return // no request has waited here, and one that comes after the end need not
	case replaceable && c.onBoard && wait < left:
		c.replaceLocked(now, wait, interval{})
		same = true
	}
	c.onBoard = c.onBoard || same
	c.interval.add(boardInterval(every))
	if every > 0 && !c.begun {
		c.window = 0 // the Board has given each process a time of its own already
	}
	c.wakeLateLocked(0, now)
}

// probe reports whether a request may go although the key is closed for a minute or more: one a
// minute since the server last said so, or was last probed. It takes the turn if so.
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
	at, _ := slices.BinarySearchFunc(c.line, w, func(v, w *waiter) int { return cmp.Or(v.compare(w), -1) })
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

// A standing is where a waiter stands: it has a permit, or it waits, or it would wait too long.
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

// expectedLocked is when that is going to be, if the rate of a throttle stays as it is.
func (c *coolDown) expectedLocked(at int, now time.Duration) time.Duration {
	start := c.earliestLocked(at, now)
	if c.throttle.on {
		if c.throttle.refusing() {
			at = len(c.line) - 1 - at // the last goes first
		}
		return start + time.Duration(at)*c.throttle.interval()
	}
	return start
}

// nextLocked is the index of the one that goes next: the first, but the last while the
// server refuses all, since that one was sent least often.
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
	c.begun, c.slots = true, max(1, len(c.line))
	c.slotGap = c.window / time.Duration(c.slots)
	c.from = c.until + uniform(c.slotGap)
	if c.throttle.on {
		c.from = max(c.from, c.throttle.resumes) // a short hint does not end its pause
	}
}

// spacingLocked is the time between two releases.
func (c *coolDown) spacingLocked(now time.Duration) (gap time.Duration) {
	if c.slots > 0 && now < c.until+c.window {
		gap = c.slotGap
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
		if !c.throttle.on { // which spaces by the real time: its server may allow no burst at all
			c.last = max(due, now-lateness)
		}
	}
	c.unanswered++
	c.slots--
	c.interval.left--
	c.wakeNextLocked()
	return permit{c: c, round: c.round}
}

func (c *coolDown) wakeNextLocked() {
	if len(c.line) > 0 {
		c.line[c.nextLocked()].wakeUp()
	}
}

// wakeLateLocked wakes those of the line that will not be released in time, from a place on.
func (c *coolDown) wakeLateLocked(from int, now time.Duration) {
	for at, w := range c.line[from:] {
		if c.lateLocked(w, from+at, now) {
			w.wakeUp()
		}
	}
}

func (w *waiter) wakeUp() {
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
	if c.state.Load() == stateCounting && !c.throttle.counts(now) && !a.plain {
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

// unused takes back a permit whose request was not sent, or was not answered by the server.
func (c *coolDown) unused(p permit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.round == c.round && !p.probe {
		c.unanswered--
		c.wakeNextLocked()
	}
}

// throttleLocked pauses the key, and then releases requests at the throttle's rate.
func (c *coolDown) throttleLocked(now time.Duration) {
	c.throttle.start(now)
	c.begun, c.from, c.last, c.slots = true, max(c.until, c.throttle.resumes), 0, 0
	c.state.Store(stateClosed)
	c.wakeLateLocked(0, now)
}

// startCounting makes answers count from now on: one was a refusal without a hint.
func (c *coolDown) startCounting() { c.state.CompareAndSwap(stateOpen, stateCounting) }

// closedFor is how long nobody goes.
func (c *coolDown) closedFor(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != stateClosed {
		return 0
	}
	return max(0, c.until-now, c.from-now)
}
