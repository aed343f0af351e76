package pace

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// reviewEvery is how often a line looks whether its limiter is still as it was
// when the first in line asked it.
const reviewEvery = time.Second

// A line is where requests wait for a rate.Limiter, first in, first out.
//
// A rate.Limiter names a time to everybody who comes, and when one of them
// leaves, the others keep theirs. So here only the first in line has a token
// reserved. When he leaves, it is the next one's, and all move up.
type line struct {
	mu      *sync.Mutex // guards all below, and the waiters; several lines may share it
	limiter *rate.Limiter
	own     bool       // nobody else uses limiter
	hope    rate.Limit // what the limit is going to be, if it is less for the moment

	waiting  list.List  // of *waiter
	reserved bool       // the limiter has given a token for the first of waiting
	due      time.Time  // when he may use it
	limit    rate.Limit // the limiter's, when it said so
	reviewed time.Time
	timer    *time.Timer // calls tick; nil if nobody waits
}

// A waiter is a request in a line.
type waiter struct {
	line   *line
	key    string
	joined time.Time
	bound  bound
	place  *list.Element // nil once it has left the line
	turn   chan error    // nil, or why there will be no turn
}

// joinLocked takes a turn. If it has come already, the waiter is nil.
func (l *line) joinLocked(ctx context.Context, key string, most time.Duration, now time.Time) (*waiter, error) {
	if l.waiting.Len() == 0 && l.limiter.AllowN(now, 1) {
		return nil, nil
	}
	l.refreshLocked(now)
	b := boundOf(ctx, most, now)
	if wait := l.waitLocked(l.waiting.Len(), now); !b.holds(wait, now) {
		return nil, b.overdue(key, wait, now)
	}
	w := &waiter{line: l, key: key, joined: now, bound: b.eased(), turn: make(chan error, 1)}
	w.place = l.waiting.PushBack(w)
	l.refreshLocked(now)
	return w, nil
}

// wait blocks until w's turn.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
		w.leave()
		return ended(ctx)
	}
}

// leave gives up the place in line, or the turn if it came at the same moment.
func (w *waiter) leave() {
	l := w.line
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if w.place != nil {
		l.dismissLocked(w, nil)
		l.refreshLocked(now)
	} else if err := <-w.turn; err == nil {
		l.giveBackLocked(now)
	}
}

// dismissLocked takes w out of the line and tells it why: nil is its turn.
func (l *line) dismissLocked(w *waiter, why error) {
	l.waiting.Remove(w.place)
	w.place = nil
	w.turn <- why
}

// giveBackLocked takes back a turn that was not used: the first in line may have
// it now. What is reserved for him goes back with it, so that the limiter counts
// both, and keeps no more than its burst. But if others have reservations after
// his, he would fall behind them: then it is left to the next in line.
func (l *line) giveBackLocked(now time.Time) {
	l.refreshLocked(now)
	if l.reserved && l.limiter.TokensAt(now) <= -1 {
		l.dismissLocked(l.firstLocked(), nil)
	} else {
		if l.reserved {
			l.releaseLocked(now)
		}
		l.returnLocked(now)
	}
	l.refreshLocked(now)
}

// releaseLocked gives back what is reserved.
func (l *line) releaseLocked(now time.Time) {
	l.reserved, l.due = false, now
	l.returnLocked(now)
}

// returnLocked puts a token back into the limiter, which keeps no more of them
// than its burst. That a negative number of events does so is undocumented, but
// much relied upon (golang.org/issue/54082), by tests here as well. A
// Reservation's Cancel cannot do it once the time to act has come.
func (l *line) returnLocked(now time.Time) { l.limiter.ReserveN(now, -1) }

func (l *line) firstLocked() *waiter { return l.waiting.Front().Value.(*waiter) }

// tick is what the timer calls.
func (l *line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshLocked(time.Now())
}

// refreshLocked is called after every change, and before one is decided on.
func (l *line) refreshLocked(now time.Time) {
	l.advanceLocked(now)
	if l.waiting.Len() > 0 && (l.limit != l.limiter.Limit() || now.Sub(l.reviewed) >= reviewEvery) {
		l.reviewLocked(now)
	}
	if l.waiting.Len() == 0 && l.reserved {
		l.releaseLocked(now)
	}
	l.armLocked(now)
}

// advanceLocked grants the turns that have come, and reserves the next.
func (l *line) advanceLocked(now time.Time) {
	for l.waiting.Len() > 0 {
		if !l.reserved {
			l.reserveLocked(now)
		}
		if l.due.After(now) {
			return
		}
		l.reserved = false
		l.dismissLocked(l.firstLocked(), nil)
	}
}

// reserveLocked asks the limiter for the token of the first in line. It is
// asked as of the moment he came to be the first: however late the timer
// was, no time is lost. With a limiter that others use, too, that would turn
// its clock back, and so make tokens out of nothing.
func (l *line) reserveLocked(now time.Time) {
	at := now
	if l.own {
		at = later(l.due, l.firstLocked().joined)
	}
	l.limit = l.limiter.Limit()
	l.due = at.Add(l.limiter.ReserveN(at, 1).DelayFrom(at))
	l.reserved = true
}

// reviewLocked asks the limiter anew if its limit changed, and dismisses all
// whose turns would now come too late.
func (l *line) reviewLocked(now time.Time) {
	l.reviewed = now
	if l.limit != l.limiter.Limit() {
		l.releaseLocked(now)
		l.advanceLocked(now)
	}
	ahead := 0
	for place := l.waiting.Front(); place != nil; {
		w := place.Value.(*waiter)
		place = place.Next()
		if wait := l.waitLocked(ahead, now); w.bound.holds(wait, now) {
			ahead++
		} else {
			l.dismissLocked(w, w.bound.overdue(w.key, wait, now))
		}
	}
}

// armLocked sets the timer to the next moment when there is something to do.
func (l *line) armLocked(now time.Time) {
	if l.waiting.Len() == 0 {
		if l.timer != nil {
			l.timer.Stop()
			l.timer = nil
		}
		return
	}
	d := min(l.due.Sub(now), reviewEvery)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.tick)
	} else {
		l.timer.Reset(d)
	}
}

// waitLocked is how long a request waits for its turn that has so many others
// ahead of it.
func (l *line) waitLocked(ahead int, now time.Time) time.Duration {
	limit := max(l.limiter.Limit(), l.hope)
	switch {
	case limit == rate.Inf:
		return 0
	case l.limiter.Burst() < 1:
		return forever
	case !l.reserved:
		return delay(ahead+1, l.limiter.TokensAt(now), limit)
	case ahead == 0 && limit > 0:
		return l.due.Sub(now)
	}
	return delay(ahead, l.limiter.TokensAt(now), limit)
}

// delay is the time until a bucket of so many tokens, negative if they are
// owed, holds n.
func delay(n int, tokens float64, limit rate.Limit) time.Duration {
	missing := float64(n) - tokens
	if missing <= 0 {
		return 0
	}
	d := missing / float64(limit) * float64(time.Second)
	if limit > 0 && d < float64(forever) {
		return time.Duration(d)
	}
	return forever
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
