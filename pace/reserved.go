package pace

import (
	"slices"
	"time"
)

// A reservedLine is where requests of one key and one cost wait for the moments that they have
// reserved. The first in line has the earliest of them: when a request leaves, those behind it
// move up, and the latest is given back. To give back its own would not do: the Store would let
// a newcomer have units for a moment that is another's as well.
type reservedLine struct {
	line
	gates    []gate // the line itself
	waiters  waiting
	holds    []*hold // of those who wait, by their dues
	released []*hold // of those who were let go, and have not fetched them yet
}

func (l *reservedLine) cost(costs) int64                   { return 1 }
func (l *reservedLine) spare(int64, int64, time.Time) bool { return false }
func (l *reservedLine) giveBack(int64, time.Time)          {} // what is released is fetched
func (l *reservedLine) rest(time.Time)                     {}
func (l *reservedLine) waiting() *waiting                  { return &l.waiters }

func (l *reservedLine) due(_ int64, now time.Time) time.Duration { return l.delay(1, 0, now) }

func (l *reservedLine) delay(_, ahead int64, now time.Time) time.Duration {
	if ahead >= int64(len(l.holds)) {
		return unknown
	}
	return max(0, l.holds[ahead].due.Sub(now))
}

func (l *reservedLine) take(int64, time.Time) int64 {
	l.released = append(l.released, l.holds[0])
	l.holds = slices.Delete(l.holds, 0, 1)
	return -1
}

// enterLocked puts h among those that are waited for.
func (l *reservedLine) enterLocked(h *hold) {
	i := len(l.holds)
	for ; i > 0 && l.holds[i-1].due.After(h.due); i-- {
	}
	l.holds = slices.Insert(l.holds, i, h)
}

// exchangeLocked puts a hold that is not used among those that are waited for, and takes out the
// latest.
func (l *reservedLine) exchangeLocked(h *hold, now time.Time) *hold {
	if h.due.Before(now) {
		h.due = now
	}
	l.enterLocked(h)
	last := len(l.holds) - 1
	h, l.holds = l.holds[last], l.holds[:last]
	l.refreshLocked(now)
	return h
}

// fetchLocked returns the hold of a request that no longer waits: if it passed, one that was
// released, or else the latest.
func (l *reservedLine) fetchLocked(passed bool) (h *hold) {
	if passed {
		h, l.released = l.released[0], l.released[1:]
		return h
	}
	last := len(l.holds) - 1
	h, l.holds = l.holds[last], l.holds[:last]
	return h
}
