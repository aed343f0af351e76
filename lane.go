package heed

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A lane is what the requests of one key pass while and after the key cools
// down. They wait in line, those first that were sent most often, so that none
// runs out of attempts while others have theirs before them, and of these the
// ones that were called first.
//
// When the cool-down is over, that of the last policy that denied a request, they
// are let go as a drip. If the server's interval is known, one each interval. If
// not, they are first spread over the jitter window, and never more of them are
// unanswered than answers have come back good, plus one; each good answer makes the
// drip faster, too. So a server that has room for ten is not sent forty. A good
// answer with nobody left in line opens the lane then; a known interval is kept as
// long as there is a line.
type lane struct {
	closed atomic.Bool // if false, nothing below matters

	mu      sync.Mutex
	until   time.Duration // the cool-down's end
	every   time.Duration // the server's interval, 0 if unknown: the slowest of denials
	spread  time.Duration // the jitter window
	told    time.Duration // when the server last said so, or was last asked again
	denials []denial      // by the policies that were exhausted since it was last open
	round   int           // which cool-down this is: late answers to an earlier one do not count

	line   []*waiter
	begun  bool          // whether the drip has: gap and next are set
	gap    time.Duration // between two releases at the start of the drip
	next   time.Duration // the next release, at the earliest
	width  int           // how many may be unanswered
	flying int           // how many are
}

// A waiter is a place in line.
type waiter struct {
	attempts int           // that were made
	called   time.Duration // when RoundTrip was
	wake     chan struct{} // told when it may be worth asking again
}

// compare is negative if w goes before v.
func (w *waiter) compare(v *waiter) int {
	return cmp.Or(cmp.Compare(v.attempts, w.attempts), cmp.Compare(w.called, v.called))
}

// A pass is the permission to go in one round of a lane; its zero value is that
// of a request which met no cool-down.
type pass struct {
	lane  *lane
	round int
}

// patience is how long a drip waits for an answer before it lets another one
// go: a response that never comes must not hold up the line.
const patience = time.Second

// never is far enough away for a waiter that is going to be woken.
const never = maxDuration / 2

// jitterWindow is the range of the jitter after a hint: wide enough to tell many
// waiters apart, narrow enough not to be noticed beside the hint.
func jitterWindow(hint time.Duration) time.Duration { return min(hint/10*3, 10*time.Second) }

// idle reports that a new lane would do as well.
func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overLocked(now())
}

// overLocked reports that the cool-down has ended so long ago that those who
// waited for it, here and elsewhere, have gone: there is nobody left to be spread.
func (l *lane) overLocked(now time.Duration) bool {
	return len(l.line) == 0 && now > max(l.until+l.spread, l.next+patience)
}

// open reports that requests need not pass l. It opens a lane that was left
// closed because nobody was there when its cool-down ended.
func (l *lane) open() bool {
	if !l.closed.Load() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overLocked(now()) {
		l.closed.Store(false)
	}
	return !l.closed.Load()
}

// post closes l for so long. A wait that is over before only slows the drip down.
func (l *lane) post(now, wait time.Duration, denials []denial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denyLocked(now, denials)
	if now+wait <= l.until {
		l.slowLocked()
		return
	}
	l.until, l.spread = now+wait, jitterWindow(wait)
	l.every = slowest(l.denials, l.until)
	l.told = now
	l.round++
	l.begun, l.width, l.flying = false, 1, 0
	l.closed.Store(true)
}

// slow makes the drip slower if it is faster than every, the next release included.
func (l *lane) slow(now, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if every > l.every {
		l.denyLocked(now, unnamed(every))
		l.slowLocked()
	}
}

func (l *lane) slowLocked() {
	every := slowest(l.denials, l.until)
	if every <= l.every {
		return
	}
	if l.begun {
		l.gap = every
		l.next += every - l.every
	}
	l.every = every
}

func (l *lane) left(now time.Duration) (wait, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.until-now), l.every
}

// join puts w in line, behind those who were there before with as good a claim.
func (l *lane) join(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.line, w, func(v, w *waiter) int {
		return cmp.Or(v.compare(w), -1)
	})
	l.line = slices.Insert(l.line, at, w)
}

// leave takes w out of line, if it is still there, and wakes who is first then.
func (l *lane) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.line, w); at >= 0 {
		l.line = slices.Delete(l.line, at, at+1)
		l.wakeLocked()
	}
}

func (l *lane) wakeLocked() {
	if len(l.line) > 0 {
		select {
		case l.line[0].wake <- struct{}{}:
		default:
		}
	}
}

// ask reports whether w may go now. If not, wait says when to ask again unless
// woken before, and cooling whether that is for the cool-down itself.
func (l *lane) ask(w *waiter, now time.Duration) (p pass, wait time.Duration, cooling bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch wait = l.turnLocked(w, now); {
	case now < l.until:
		return pass{}, wait, true
	case wait > 0:
		return pass{}, wait, false
	}
	l.releaseLocked(now)
	return pass{l, l.round}, 0, false
}

// turnLocked is how long w has to wait as far as can be told now.
func (l *lane) turnLocked(w *waiter, now time.Duration) time.Duration {
	switch {
	case now < l.until:
		return l.until - now
	case l.line[0] != w:
		return never
	}
	l.beginLocked()
	if l.every == 0 && l.flying >= l.width {
		return l.next + patience - now
	}
	return l.next - now
}

// beginLocked gives everybody in line a place in the jitter window, the first
// one a random share of the first place.
func (l *lane) beginLocked() {
	if l.begun {
		return
	}
	l.begun, l.gap, l.next = true, l.every, l.until
	if l.every == 0 {
		place := l.spread / time.Duration(len(l.line))
		l.next += uniform(place)
		l.gap = min(place, patience)
	}
}

// releaseLocked lets the first in line go.
func (l *lane) releaseLocked(now time.Duration) {
	l.line = slices.Delete(l.line, 0, 1)
	l.flying++
	l.next = now + l.gap
	if l.every == 0 {
		l.next = now + l.gap/time.Duration(l.width)
	}
	l.wakeLocked()
}

// look reports whether a request may go during the cool-down, to see whether it
// is still meant: one each interval since the server was last heard.
func (l *lane) look(now, interval time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now-l.told < interval {
		return false
	}
	l.told = now
	return true
}

// stale reports that a cool-down was posted since p was given.
func (p pass) stale() bool {
	if p.lane == nil {
		return false
	}
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return p.lane.round != p.round
}

// answered says what became of the request that p let go. good means that it
// was not refused because of the limit: whatever else went wrong, there is room
// for more.
func (p pass) answered(good bool) {
	l := p.lane
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.round != p.round {
		return
	}
	l.flying--
	if good {
		l.width++
		l.closed.Store(l.every > 0 || len(l.line) > 0)
	}
	l.wakeLocked()
}
