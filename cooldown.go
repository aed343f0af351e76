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

// A coolDown is the state of one key. Until a certain time no request is sent; after that the
// waiting ones are released one by one.
//
//   - A request waits only if it can be released in time. Otherwise it is refused at once.
//   - While a minute or more is left, one request a minute is sent as a probe instead of being
//     refused. Its answer replaces the cool-down.
//   - The line is released evenly over the jitter window, so that neither its requests nor those of
//     other processes arrive together; after that, as fast as good answers come.
//   - If the server is known to admit one request per interval, they are released at that interval,
//     unless the server says that more is left.
//   - The length of the line is limited.
//
// If a key's requests are refused without a hint, it has a throttle, which releases the line at a
// rate that it searches for.
//
// The methods take the time as an argument, and never block.
type coolDown struct {
	state atomic.Int32 // open, counting or closed

	mu        sync.Mutex    // guards the fields below
	round     int           // counts closures: answers to requests of an earlier round are ignored
	until     time.Duration // only probes are sent before
	window    time.Duration // length of the jitter window, which begins at until
	checkedAt time.Duration // when the server last confirmed it, or a probe was last sent
	onBoard   bool          // a shared Board has this closure too
	line      []*waiter     // in the order of release

	// The release of the line, after until.
	releasing    bool          // places and firstRelease are set
	firstRelease time.Duration // the earliest time of the first release
	last         time.Duration // when the last release was, or was due
	places       int           // how many places in the jitter window are left
	placeGap     time.Duration // time between two of them
	unanswered   int           // requests of this round that are under way
	answered     int           // requests of this round that were answered well
	interval     interval
	throttle     throttle
}

// States of a coolDown.
const (
	stateOpen     = iota // no request waits
	stateCounting        // no request waits, but answers are counted after a refusal without a hint
	stateClosed          // each request needs a permit
)

const (
	longestCoolDown = 24 * time.Hour // longer waits are cut to this: no server means them
	longestInterval = time.Minute    // longer ones are ignored
	longestLine     = 10_000
	probeEvery      = time.Minute

	// A response that never comes must not block the line for longer.
	longestSilence = time.Second

	// Timers and busy machines are late. A release that is late by less than this does not delay
	// the next one.
	lateness = 10 * time.Millisecond

	// A coolDown that still learns from the server's answers is kept for this time after the last
	// request that had to wait.
	keepAfterRelease = 10 * time.Second
)

// jitterWindow is the range of the jitter after a hint, three tenths of the hint: wide enough to
// spread many waiters, and short compared to the hint.
func jitterWindow(hint time.Duration) time.Duration { return min(hint/10*3, 10*time.Second) }

// A waiter is a request in line.
type waiter struct {
	attempts int           // made so far
	called   time.Duration // when RoundTrip was called
	since    time.Duration // when its wait began
	maxWait  time.Duration // RetryPolicy.MaxWait
	deadline time.Duration // its deadline, or the end of its MaxElapsed
	wake     chan struct{} // receives when the waiter must ask again
}

// compare is negative if w goes before v. The request with more attempts goes first, so that none
// runs out of attempts while others have not begun; of equal ones, the call that began first.
func (w *waiter) compare(v *waiter) int {
	return cmp.Or(cmp.Compare(v.attempts, w.attempts), cmp.Compare(w.called, v.called))
}

// latest is the latest time at which w may be released. The jitter window may exceed MaxWait,
// unless MaxWait allows no waiting.
func (w *waiter) latest(window time.Duration) time.Duration {
	if w.maxWait <= 0 {
		return min(w.since, w.deadline)
	}
	return min(after(after(w.since, w.maxWait), window), w.deadline)
}

// after returns t+d, or the longest Duration instead of overflowing.
func after(t, d time.Duration) time.Duration {
	if d > maxDuration-t {
		return maxDuration
	}
	return t + d
}

// A permit allows one request to be sent. The zero permit belongs to a request that met no
// cool-down.
type permit struct {
	c     *coolDown
	round int
	probe bool
}

// open reports whether req need not wait or be counted.
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
		c.throttle.on && now >= c.until && !c.interval.confirmed && c.throttle.exempts(scope.Route(req), now)
}

// idle reports whether c holds nothing worth keeping.
func (c *coolDown) idle(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overLocked(now) && !c.throttle.counts(now)
}

// overLocked reports whether the cool-down ended so long ago that no request waits for it, in any
// process, and that it no longer learns from answers.
func (c *coolDown) overLocked(now time.Duration) bool {
	if len(c.line) > 0 {
		return false
	}
	end := max(c.until+c.window, c.firstRelease, c.last+longestSilence)
	switch {
	case c.throttle.on:
		end = max(end, c.throttle.held+keepAfterRelease)
	case c.interval.confirmed && c.interval.reported:
		end = max(end, c.last+keepAfterRelease)
	case c.interval.confirmed:
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

// read returns how long the cool-down still lasts, and the interval.
func (c *coolDown) read(now time.Duration) (wait, every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == stateClosed && !c.overLocked(now) && c.interval.confirmed {
		every = c.interval.every
	}
	return max(0, c.until-now), every
}

// post closes the key for wait. If an earlier cool-down lasts longer, only the interval is added.
func (c *coolDown) post(now, wait time.Duration, i interval) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.postLocked(now, wait, i)
}

func (c *coolDown) postLocked(now, wait time.Duration, i interval) {
	if c.state.Load() != stateClosed || c.overLocked(now) {
		c.openLocked(now) // drop what is left of an older cool-down
	}
	c.interval.add(i)
	if end := now + min(wait, longestCoolDown); end > c.until {
		c.closeLocked(now, end, wait)
	}
}

// replace closes the key for wait, whatever was posted before, or opens it.
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

// posted notes whether the shared Board has this closure too.
func (c *coolDown) posted(onBoard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBoard = c.onBoard || onBoard
}

func (c *coolDown) closeLocked(now, until, wait time.Duration) {
	c.until, c.window, c.checkedAt = until, jitterWindow(wait), now
	c.round++
	c.onBoard = false
	c.releasing, c.firstRelease, c.last, c.unanswered, c.answered = false, 0, 0, 0, 0
	c.state.Store(stateClosed)
	c.wakeLateLocked(0, now)
	c.wakeNextLocked()
}

// follow applies what was read from a shared Board. Because of its other clock, the same cool-down
// ends slightly later or earlier at each reading, and its interval grows with the number of
// processes. A ProbeBoard may shorten a closure that it has, but not one that it does not know yet.
func (c *coolDown) follow(now, wait, every time.Duration, replaceable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.until - now
	// known reports that the Board has the closure that c has.
	known := wait > 0 && c.state.Load() == stateClosed && max(wait-left, left-wait) < time.Second
	switch {
	case known:
		c.until = max(c.until, now+wait) // the other clock differs a little
	case wait > max(0, left):
		c.postLocked(now, wait, interval{})
		known = true
	case c.state.Load() != stateClosed:
		return // the key is open here, and the Board does not close it
	case replaceable && c.onBoard && wait < left:
		c.replaceLocked(now, wait, interval{})
		known = true
	}
	c.onBoard = c.onBoard || known
	c.interval.add(boardInterval(every))
	if every > 0 && !c.releasing {
		c.window = 0 // the Board already gives each process its own time
	}
	c.wakeLateLocked(0, now)
}

// probe reports whether a request may be sent as a probe, and records that. It allows one a minute
// while the key is closed for a minute or more.
func (c *coolDown) probe(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until-now < probeEvery || now-c.checkedAt < probeEvery {
		return false
	}
	c.checkedAt = now
	return true
}

// permitProbe returns the permit of a probe.
func (c *coolDown) permitProbe() permit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return permit{c, c.round, true}
}

// join puts w in line. It returns false if the line is full.
func (c *coolDown) join(w *waiter, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) >= longestLine {
		return false
	}
	at, _ := slices.BinarySearchFunc(c.line, w, func(v, w *waiter) int { return cmp.Or(v.compare(w), -1) })
	c.line = slices.Insert(c.line, at, w)
	if at+1 < len(c.line) && c.interval.confirmed {
		c.wakeLateLocked(at+1, now) // those behind w wait longer now
	}
	return true
}

// leave removes w from the line, if it is still there.
func (c *coolDown) leave(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.line, w); at >= 0 {
		c.line = slices.Delete(c.line, at, at+1)
		c.wakeNextLocked()
	}
}

// A position says where a waiter stands: it has a permit, it waits, or it would wait too long.
type position struct {
	permit      permit
	round       int
	wait        time.Duration // until it is released, as far as known
	askAgain    time.Duration // when it must ask again at the latest
	late        bool          // it would be released too late
	overMaxWait bool          // and the reason is RetryPolicy.MaxWait
}

// ask returns the position of w, which must be in line. It releases w if possible.
func (c *coolDown) ask(w *waiter, now time.Duration) position {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.line, w)
	next := at == c.nextLocked()
	if next && c.readyLocked(now) {
		return position{permit: c.releaseLocked(at, now)}
	}
	p := position{round: c.round, wait: c.expectedLocked(at, now) - now}
	if p.late = c.lateLocked(w, at, now); p.late {
		p.overMaxWait = w.latest(c.window) < w.deadline || c.until > after(w.since, w.maxWait)
		return p
	}
	p.askAgain = w.latest(c.window) - now
	if next {
		p.askAgain = min(p.askAgain, c.readyAtLocked(now)-now)
	}
	return p
}

// lateLocked reports whether the waiter at that index would be released too late. Only the jitter
// window may exceed MaxWait: the cool-down itself must fit into it.
func (c *coolDown) lateLocked(w *waiter, at int, now time.Duration) bool {
	latest := w.latest(c.window)
	return now >= latest || c.until > after(w.since, w.maxWait) || c.earliestLocked(at, now) > latest
}

// earliestLocked is the earliest time at which the waiter at that index can be released. It ignores
// places in the jitter window and the rate of a throttle, which are only guesses. Those for which
// the server has units left go at once, the others one interval after the other.
func (c *coolDown) earliestLocked(at int, now time.Duration) time.Duration {
	start := max(now, c.dueLocked(now))
	if c.throttle.on || !c.interval.confirmed {
		return start
	}
	return start + time.Duration(max(0, at-max(0, int(c.interval.left))))*c.interval.every
}

// expectedLocked is when that waiter will be released, if the throttle's rate stays the same.
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

// nextLocked is the index of the next waiter. It is the first one; but while the server refuses
// all, the last one, which has used the fewest attempts.
func (c *coolDown) nextLocked() int {
	if c.throttle.refusing() {
		return len(c.line) - 1
	}
	return 0
}

// readyLocked reports whether the next waiter may go now.
func (c *coolDown) readyLocked(now time.Duration) bool { return now >= c.readyAtLocked(now) }

// readyAtLocked is when the next waiter may go if no answer comes before.
func (c *coolDown) readyAtLocked(now time.Duration) time.Duration {
	at := c.dueLocked(now)
	if c.unanswered > c.answered && !c.interval.confirmed && !c.throttle.on {
		at = max(at, c.last+longestSilence)
	}
	return at
}

// dueLocked is when the next waiter may go, however many requests are unanswered.
func (c *coolDown) dueLocked(now time.Duration) time.Duration {
	if now < c.until {
		return c.until
	}
	c.startReleaseLocked()
	return max(c.firstRelease, c.last+c.spacingLocked(now))
}

// startReleaseLocked divides the jitter window among the waiters. The first release comes at a
// random time within the first place.
func (c *coolDown) startReleaseLocked() {
	if c.releasing {
		return
	}
	c.releasing, c.places = true, max(1, len(c.line))
	c.placeGap = c.window / time.Duration(c.places)
	c.firstRelease = c.until + uniform(c.placeGap)
	if c.throttle.on {
		c.firstRelease = max(c.firstRelease, c.throttle.resumes) // a short hint does not end its pause
	}
}

// spacingLocked is the time between two releases.
func (c *coolDown) spacingLocked(now time.Duration) (gap time.Duration) {
	if c.places > 0 && now < c.until+c.window {
		gap = c.placeGap
	}
	switch {
	case c.throttle.on:
		return max(gap, c.throttle.interval())
	case c.interval.confirmed && c.interval.left <= 0:
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
		if !c.throttle.on { // a throttle's server may allow no burst, so lateness is not made up for
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
		c.line[c.nextLocked()].wakeUp()
	}
}

// wakeLateLocked wakes the waiters, from an index on, that cannot be released in time.
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

// stale reports whether the key was closed again since p was given.
func (p permit) stale() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.round != p.round
}

// An answer is what a coolDown learns from one attempt.
type answer struct {
	route    string
	sent     time.Duration
	failed   bool              // there was no response
	refused  bool              // because of a limit
	unhinted bool              // and there was no hint
	limits   []ratelimit.Limit // that the response reports
}

// answer records the answer to a request that was sent with p. It reports whether the key has a
// throttle.
func (c *coolDown) answer(p permit, a answer, now time.Duration) (throttled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == stateCounting && !c.throttle.counts(now) && !a.unhinted {
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
	if !c.interval.reported && now-c.checkedAt >= longestInterval {
		c.interval = interval{} // no answer confirmed it
	}
	if c.interval.confirmed {
		c.wakeLateLocked(0, now)
	} else if len(c.line) == 0 && !c.throttle.on {
		c.openLocked(now)
	}
}

// returnPermit takes back a permit whose request was not sent or not answered by the server.
func (c *coolDown) returnPermit(p permit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.round == c.round && !p.probe {
		c.unanswered--
		c.wakeNextLocked()
	}
}

// throttleLocked pauses the key, then releases requests at the throttle's rate.
func (c *coolDown) throttleLocked(now time.Duration) {
	c.throttle.start(now)
	c.releasing, c.firstRelease, c.last, c.places = true, max(c.until, c.throttle.resumes), 0, 0
	c.state.Store(stateClosed)
	c.wakeLateLocked(0, now)
}

// startCounting counts the answers from now on, because one was a refusal without a hint.
func (c *coolDown) startCounting() { c.state.CompareAndSwap(stateOpen, stateCounting) }

// closedFor is how long no request is released.
func (c *coolDown) closedFor(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != stateClosed {
		return 0
	}
	return max(0, c.until-now, c.firstRelease-now)
}
