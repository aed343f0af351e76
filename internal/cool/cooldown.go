package cool

import (
	"cmp"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A CoolDown is what refusals because of a limit say about one key. It is closed until a certain time,
// after which its line is released.
//
//   - A request waits only if it can be released in time. Otherwise it is late.
//   - While a minute or more is left of a closure that nothing confirms, a late request is sent as a probe
//     after 1, 2, 4, 8 … minutes, and its answer replaces the closure. The others are not sent.
//   - If the server is known to admit one request per interval, the line is released at that interval,
//     unless the server says that more is left.
//
// If a key's requests are refused without a hint, it has a throttle, which releases the line at a rate
// that it searches for.
//
// The zero CoolDown is open. It is safe for concurrent use; do not copy it.
type CoolDown struct {
	state atomic.Int32
	good  atomic.Int64 // when an answer, or silence, last showed that the server admits requests

	mu        sync.Mutex    // guards the fields below
	round     int           // counts closures: a Permit of an earlier one does not move the release
	until     time.Duration // only probes are sent before; 0 before the first closure
	window    time.Duration // length of the jitter window, which begins at until
	checkedAt time.Duration // when the closure began, or a probe was last sent
	confirmed bool          // the server means the closure: no probe is sent
	onBoard   bool          // a shared Board has this closure too
	series    series
	line      line
	release   release
	interval  Interval
	throttle  throttle
}

// States of a CoolDown.
const (
	open     = iota // no request waits
	counting        // no request waits, but answers are counted after a refusal without a hint
	closed          // each request needs a Permit
)

const (
	// LongestCoolDown is what longer waits are cut to: no server means them.
	LongestCoolDown = 24 * time.Hour

	longestInterval = time.Minute // longer ones are ignored
	firstProbe      = time.Minute
	sameEnd         = 2 * time.Second

	longestWindow = 10 * time.Second // of a release

	// A CoolDown that still learns from the server's answers is kept for this time after the last
	// request that had to wait.
	keepAfterRelease = 10 * time.Second
)

// Jitter is the range of the jitter after a hint, three tenths of the hint: wide enough to spread many
// waiters, and short compared to the hint.
func Jitter(hint time.Duration) time.Duration { return min(hint/10*3, longestWindow) }

// byAttempts is the order of a CoolDown's line. The request with more attempts goes first, so that none
// runs out of attempts while others have not begun; of equal ones, the call that began first.
func byAttempts(a, b *Waiter) int {
	return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(a.Called, b.Called))
}

// A series is closures one after the other, without a good answer since the one before began: the server
// refuses everything, however long it is left alone.
type series struct {
	began   time.Duration
	hint    time.Duration // the last one
	refused bool          // there were two closures or more
}

// hopeless is when a new request no longer waits for the end of s: after its MaxWait, or after five
// hints if these are long. A retry waits for as long as its policy says.
func (s series) hopeless(w *Waiter) time.Duration {
	if !s.refused || w.Attempts > 0 {
		return longest
	}
	return After(s.began, max(w.MaxWait, 5*s.hint))
}

// latestLocked is the latest time at which w may be released. The jitter window may exceed MaxWait,
// unless MaxWait allows no waiting.
func (c *CoolDown) latestLocked(w *Waiter) time.Duration {
	if w.MaxWait <= 0 {
		return min(w.Since, w.Deadline)
	}
	return min(After(min(After(w.Since, w.MaxWait), c.series.hopeless(w)), c.window), w.Deadline)
}

// Open reports whether req may go without a Permit.
func (c *CoolDown) Open(req *http.Request, now time.Duration) bool {
	if c.state.Load() != closed {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overLocked(now) {
		c.openLocked(now)
	}
	return c.state.Load() != closed ||
		c.throttle.on && now >= c.until && !c.interval.confirmed && c.throttle.exempts(scope.Route(req), now)
}

// Learning reports whether answers must be reported although no request waits.
func (c *CoolDown) Learning() bool { return c.state.Load() != open }

// Idle reports whether c holds nothing worth keeping.
func (c *CoolDown) Idle(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overLocked(now) && !c.throttle.counts(now)
}

// overLocked reports whether the closure ended so long ago that no request waits for it, in any
// process, and that it no longer learns from answers.
func (c *CoolDown) overLocked(now time.Duration) bool {
	if len(c.line) > 0 {
		return false
	}
	end := max(c.until+c.window, c.release.first, c.release.last+longestSilence)
	switch {
	case c.throttle.on:
		end = max(end, c.throttle.held+keepAfterRelease)
	case c.interval.confirmed && c.interval.reported:
		end = max(end, c.release.last+keepAfterRelease)
	case c.interval.confirmed:
		end = max(end, c.release.last+c.interval.every)
	}
	return now > end
}

func (c *CoolDown) openLocked(now time.Duration) {
	c.interval, c.throttle.on = Interval{}, false
	if c.throttle.counts(now) {
		c.state.Store(counting)
		return
	}
	c.throttle.routes = nil
	c.state.Store(open)
}

// Read returns how long the closure still lasts, and the interval, or 0.
func (c *CoolDown) Read(now time.Duration) (wait, every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == closed && !c.overLocked(now) {
		every = c.interval.Every()
	}
	return max(0, c.until-now), every
}

// ClosedFor is how long no request is released.
func (c *CoolDown) ClosedFor(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != closed {
		return 0
	}
	return max(0, c.until-now, c.release.first-now)
}

// GoodSince reports whether a request was answered well after a time.
func (c *CoolDown) GoodSince(t time.Duration) bool { return time.Duration(c.good.Load()) > t }

// Free reports whether the retry of a request that was sent at a time and refused with a hint costs no
// budget. It costs one if the server seems to refuse everything: the request was sent after the end of
// the last closure, and nothing was answered well since. But if others are in line, the retry is free,
// because it only takes the place of another request. Call it before Post.
func (c *CoolDown) Free(sent time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sent <= c.until || c.until == 0 || time.Duration(c.good.Load()) >= c.until || len(c.line) > 0
}

// ByChance reports whether a refusal with a short hint says nothing about other requests, as far as is known.
// Call it before Post and Answer.
func (c *CoolDown) ByChance(a Answer, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.throttle.byChance(a, now)
}

// Good records that a request was answered well.
func (c *CoolDown) Good(now time.Duration) { c.good.Store(int64(now)) }

// Post closes the key for wait. If an earlier closure lasts longer, only the interval is added.
func (c *CoolDown) Post(now, wait time.Duration, i Interval) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.postLocked(now, wait, i)
}

func (c *CoolDown) postLocked(now, wait time.Duration, i Interval) {
	if c.state.Load() != closed || c.overLocked(now) {
		c.openLocked(now) // drop what is left of an older closure
	}
	c.interval.add(i)
	if end := now + min(wait, LongestCoolDown); end > c.until {
		c.closeLocked(now, end, wait)
	}
}

// Replace closes the key for wait, whatever was posted before. If wait is not positive, it opens the
// key.
func (c *CoolDown) Replace(now, wait time.Duration, i Interval) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceLocked(now, wait, i)
}

func (c *CoolDown) replaceLocked(now, wait time.Duration, i Interval) {
	if c.state.Load() != closed {
		return
	}
	wait = min(max(0, wait), LongestCoolDown)
	c.interval = i
	before := c.until
	c.closeLocked(now, now+wait, wait)
	c.confirmed = (c.until - before).Abs() <= sameEnd // a hint that is wrong would not count down
}

// Confirm notes that the server means a closure that ends at a time, unless another one has replaced it.
func (c *CoolDown) Confirm(end time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirmed = c.confirmed || (c.until-end).Abs() <= sameEnd
}

// Shared notes that the shared Board has this closure too.
func (c *CoolDown) Shared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBoard = true
}

func (c *CoolDown) closeLocked(now, until, wait time.Duration) {
	if wait > 0 {
		c.extendSeriesLocked(now, wait)
	}
	c.interval.left = 0
	c.until, c.window, c.checkedAt = until, Jitter(wait), now
	c.round++
	c.confirmed, c.onBoard, c.release = false, false, release{}
	c.state.Store(closed)
	c.wakeLateLocked(0, now)
	c.wakeNextLocked(now)
}

func (c *CoolDown) extendSeriesLocked(now, wait time.Duration) {
	switch good := time.Duration(c.good.Load()); {
	case c.until == 0 || good >= c.checkedAt || now > c.until+c.window+keepAfterRelease:
		c.series = series{began: now}
	case now > c.until:
		c.series.refused = true
	}
	c.series.hint = min(wait, LongestCoolDown)
}

// Follow applies what was read from a shared Board. Because of its other clock, the same closure
// ends slightly later or earlier at each reading, and its interval grows with the number of
// processes. A replaceable closure that c has may be shortened, but not one that the Board does not
// know yet.
func (c *CoolDown) Follow(now, wait, every time.Duration, replaceable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.until - now
	// known reports that the Board has the closure that c has.
	known := wait > 0 && c.state.Load() == closed && max(wait-left, left-wait) < time.Second
	switch {
	case known:
		c.until = max(c.until, now+wait) // the other clock differs a little
	case wait > max(0, left):
		c.postLocked(now, wait, Interval{})
		known = true
	case c.state.Load() != closed:
		return // the key is open here, and the Board does not close it
	case replaceable && c.onBoard && wait < left:
		c.replaceLocked(now, wait, Interval{})
		known = true
	}
	c.onBoard = c.onBoard || known
	c.interval.add(BoardInterval(every))
	if every > 0 && !c.release.begun {
		c.window = 0 // the Board already gives each process its own time
	}
	c.wakeLateLocked(0, now)
}

// Probe reports whether a request may be sent as a probe, and records that. The first one may be after a
// minute, and each further one when the key has been closed for twice as long.
func (c *CoolDown) Probe(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	distance := max(firstProbe, c.checkedAt-c.series.began)
	if c.confirmed || c.until-now < firstProbe || now-c.checkedAt < distance {
		return false
	}
	c.checkedAt = now
	return true
}

// PermitProbe returns the Permit of a probe.
func (c *CoolDown) PermitProbe() Permit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Permit{c.round, true}
}

// Join puts w in line. It returns false if the line is full.
func (c *CoolDown) Join(w *Waiter, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) >= LongestLine {
		return false
	}
	if at := c.line.insert(w, byAttempts); at+1 < len(c.line) && c.interval.confirmed {
		c.wakeLateLocked(at+1, now) // those behind w wait longer now
	}
	return true
}

// Leave removes w from the line, if it is still there.
func (c *CoolDown) Leave(w *Waiter, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.line.index(w); at >= 0 {
		c.line.remove(at)
		c.wakeNextLocked(now)
	}
}

// A Position says where a waiter stands: it has a Permit, it waits, or it would wait too long.
type Position struct {
	Permit      Permit
	Round       int           // counts closures
	Wait        time.Duration // until it is released, as far as known
	AskAgain    time.Duration // when it must ask again at the latest
	Next        bool          // it is the next one
	Late        bool          // it would be released too late
	OverMaxWait bool          // and the reason is MaxWait
}

// Ask returns the Position of w, which must be in line. It releases w if possible.
func (c *CoolDown) Ask(w *Waiter, now time.Duration) Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.line.index(w)
	next := at == c.nextLocked(now)
	if next && now >= c.readyAtLocked(now) {
		return Position{Permit: c.releaseLocked(at, now)}
	}
	p := Position{Round: c.round, Next: next, Wait: c.expectedLocked(at, now) - now}
	if p.Late = c.lateLocked(w, at, now); p.Late {
		p.OverMaxWait = c.latestLocked(w) < w.Deadline || c.until > After(w.Since, w.MaxWait)
		return p
	}
	w.asks = c.latestLocked(w)
	if next {
		w.asks = min(w.asks, c.readyAtLocked(now))
	} else if spare := c.spareUntil(w); spare > now {
		w.asks = min(w.asks, spare)
	}
	p.AskAgain = w.asks - now
	return p
}

// lateLocked reports whether the waiter at that index would be released too late. Only the jitter
// window may exceed MaxWait: the closure itself must fit into it.
func (c *CoolDown) lateLocked(w *Waiter, at int, now time.Duration) bool {
	latest := c.latestLocked(w)
	return now >= latest || c.until > After(w.Since, w.MaxWait) || c.earliestLocked(at, now) > latest
}

// earliestLocked is the earliest time at which the waiter at that index can be released. It ignores
// places in the jitter window and the rate of a throttle, which are only guesses. Those for which
// the server has units left go at once, the others one interval after the other.
func (c *CoolDown) earliestLocked(at int, now time.Duration) time.Duration {
	start := max(now, c.dueLocked(now))
	if c.throttle.on || !c.interval.confirmed {
		return start
	}
	if left := int(c.interval.left); left > 0 {
		at = max(0, at-left+1)
	}
	return start + time.Duration(at)*c.interval.every
}

// expectedLocked is when that waiter will be released, if the throttle's rate stays the same, or if the
// requests under way are not answered.
func (c *CoolDown) expectedLocked(at int, now time.Duration) time.Duration {
	start := c.earliestLocked(at, now)
	switch {
	case c.throttle.on:
		if c.throttle.refusing() {
			at = len(c.line) - 1 - at // the last goes first
		}
		return start + time.Duration(at)*c.throttle.interval()
	case !c.interval.confirmed && c.release.full():
		doublings := bits.Len(uint(at / c.release.unanswered))
		return max(start, c.release.silentUntil()) + time.Duration(doublings)*longestSilence
	}
	return start
}

// nextLocked is the index of the next waiter. It is the first one; but while the server refuses
// all, the last one, which has used the fewest attempts. A throttle spares those that would lose their calls.
func (c *CoolDown) nextLocked(now time.Duration) int {
	if c.throttle.refusing() {
		return len(c.line) - 1
	}
	for at, w := range c.line {
		if !c.throttle.on || now >= c.spareUntil(w) {
			return at
		}
	}
	return 0
}

// spareUntil is until when w is not sent while a throttle searches for its rate. A last attempt, which would
// lose its call, waits for as long as a pause is at most, or for half of the time that it has.
func (c *CoolDown) spareUntil(w *Waiter) time.Duration {
	if !c.throttle.on || !w.LastAttempt {
		return 0
	}
	return w.Ended + min(longestPause, (c.latestLocked(w)-w.Ended)/2)
}

// readyAtLocked is when the next waiter may go if no answer comes before.
func (c *CoolDown) readyAtLocked(now time.Duration) time.Duration {
	at := max(c.dueLocked(now), c.spareUntil(c.line[c.nextLocked(now)]))
	if !c.interval.confirmed && !c.throttle.on {
		at = max(at, c.release.silentUntil())
	}
	return at
}

// dueLocked is when the next waiter may go, however many requests are unanswered.
func (c *CoolDown) dueLocked(now time.Duration) time.Duration {
	if now < c.until {
		return c.until
	}
	if !c.release.begun {
		c.release.begin(c.until, c.window, len(c.line))
		if c.throttle.on {
			c.release.first = max(c.release.first, c.throttle.resumes) // a short hint does not end its pause
		}
	}
	switch {
	case c.throttle.on:
		return c.release.due(now, c.throttle.interval())
	case c.interval.confirmed && c.interval.left <= 0:
		return c.release.due(now, c.interval.every)
	}
	return c.release.due(now, 0)
}

func (c *CoolDown) releaseLocked(at int, now time.Duration) Permit {
	w, last := c.line[at], now
	if due := c.dueLocked(now); w.Since < due {
		c.throttle.held = now
		if !c.throttle.on { // a throttle's server may allow no burst, so lateness is not made up for
			last = max(due, now-lateness)
		}
	}
	c.line.remove(at)
	if c.release.sent(last) && !c.interval.confirmed && !c.throttle.on {
		c.Good(now)
	}
	c.interval.left--
	c.wakeNextLocked(now)
	return Permit{c.round, false}
}

func (c *CoolDown) wakeNextLocked(now time.Duration) {
	if len(c.line) > 0 {
		c.line[c.nextLocked(now)].wake()
	}
}

// wakeLateLocked wakes the waiters, from an index on, that cannot be released in time, or that would
// notice it too late.
func (c *CoolDown) wakeLateLocked(from int, now time.Duration) {
	for at, w := range c.line[from:] {
		if c.lateLocked(w, from+at, now) || c.latestLocked(w) < w.asks {
			w.wake()
		}
	}
}

// Stale reports whether the key was closed again since p was given.
func (c *CoolDown) Stale(p Permit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.round != p.round
}

// An Answer is what a CoolDown learns from one attempt.
type Answer struct {
	Route    string
	Attempt  int // 1 for the first
	Sent     time.Duration
	Good     bool              // it was answered well
	Failed   bool              // there was no response
	Refused  bool              // because of a limit
	Unhinted bool              // and there was no hint
	Short    bool              // or one that is so short that the refusal may have come by chance
	Limits   []ratelimit.Limit // that the response reports
}

// Answer records the answer to a request that was sent with p. It reports whether the key has a
// throttle.
func (c *CoolDown) Answer(p Permit, a Answer, now time.Duration) (throttled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state := c.state.Load(); {
	case state == open && (a.Unhinted || a.Short):
		c.state.Store(counting)
	case state == counting && !c.throttle.counts(now) && !a.Unhinted && !a.Short:
		c.openLocked(now)
		return false
	}
	if c.throttle.count(a, len(c.line) > 0 || now-c.throttle.held < time.Second, now) {
		c.throttleLocked(now)
	}
	if p.Given() && p.round == c.round && !p.Probe {
		c.answerLocked(a, now)
	} else if a.Good && c.state.Load() == closed {
		c.release.underWay++
	}
	c.wakeNextLocked(now)
	return c.throttle.on
}

func (c *CoolDown) answerLocked(a Answer, now time.Duration) {
	c.release.unanswered--
	if a.Refused {
		return
	}
	c.release.answer() // also if it failed: the limit did not refuse it
	c.interval.learn(a, c.release.unanswered+min(1, len(c.line)))
	if !c.interval.reported && now-c.checkedAt >= longestInterval {
		c.interval = Interval{} // no answer said how much is left
	}
	if a.Good {
		c.Good(now)
		c.endSeriesLocked(now)
	}
	if c.interval.confirmed {
		c.wakeLateLocked(0, now)
	} else if len(c.line) == 0 && !c.throttle.on {
		c.openLocked(now)
	}
}

// endSeriesLocked spreads the rest of the line evenly over as long as the series lasted, because many
// have come meanwhile.
func (c *CoolDown) endSeriesLocked(now time.Duration) {
	if s := c.series; s.refused && !c.interval.confirmed && !c.throttle.on {
		c.release.beginAfter(now, min(now-s.began, longestWindow), len(c.line))
	}
	c.series.refused = false
}

// Return takes back a Permit whose request was not sent or not answered by the server.
func (c *CoolDown) Return(p Permit, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Given() && p.round == c.round && !p.Probe {
		c.release.unanswered--
		c.wakeNextLocked(now)
	}
}

// throttleLocked pauses the key, then releases requests at the throttle's rate.
func (c *CoolDown) throttleLocked(now time.Duration) {
	c.throttle.start(now)
	c.round = max(1, c.round)
	r := &c.release
	r.begun, r.first, r.last, r.places = true, max(c.until, c.throttle.resumes), 0, 0
	c.state.Store(closed)
	c.wakeLateLocked(0, now)
}
