package pace

import (
	"slices"
	"time"
)

// A reservedLine is where requests of one key and one cost wait for the times that they
// reserved in the Store. The first in line has the earliest. When a request leaves, those
// behind it move up, and the latest reservation goes back to the Store. The request's own
// cannot go back: the Store would give those units to a new request at a time that
// another one has reserved as well.
type reservedLine struct {
	line
	gates    []gate // the line itself
	waiters  demand
	holds    []*hold // of the waiters, by due
	released []*hold // of admitted requests that have not fetched them yet
}

func (l *reservedLine) cost(costs) int64                   { return 1 }
func (l *reservedLine) spare(costs, int64, time.Time) bool { return false }
func (l *reservedLine) giveBack(int64, time.Time)          {} // the requests fetch what was released
func (l *reservedLine) idle(time.Time)                     {}
func (l *reservedLine) demand() *demand                    { return &l.waiters }

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

// enterLocked inserts h by due.
func (l *reservedLine) enterLocked(h *hold) {
	i := len(l.holds)
	for ; i > 0 && l.holds[i-1].due.After(h.due); i-- {
	}
	l.holds = slices.Insert(l.holds, i, h)
}

// exchangeLocked inserts h, which was not used, and returns the latest hold instead.
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

// fetchLocked returns the hold of a request that no longer waits: if it was admitted, a
// released one, otherwise the latest.
func (l *reservedLine) fetchLocked(admitted bool) (h *hold) {
	if admitted {
		h, l.released = l.released[0], l.released[1:]
		return h
	}
	last := len(l.holds) - 1
	h, l.holds = l.holds[last], l.holds[:last]
	return h
}

// The reservedLines of a key.
type reservedLines struct {
	byCost map[int64]*reservedLine
	owed   int64 // units that were taken behind the reservations of those that wait
}

func (l *reservedLines) of(n int64) *reservedLine {
	if l == nil {
		return nil
	}
	return l.byCost[n]
}

// advanceLocked moves all that wait behind h forward by the time of n units that h gave
// back, less what is owed. As much was reserved before them as is now free, so the limit is
// kept. A negative n is owed.
func (l *reservedLines) advanceLocked(h *hold, n int64, now time.Time) {
	l.owed -= n
	by := h.from.timeOf(-l.owed)
	if by <= 0 {
		return
	}
	l.owed = 0
	earliest := later(now, h.due)
	for _, line := range l.byCost {
		for _, w := range line.holds {
			if w.from == h.from && w.due.After(earliest) {
				w.due = later(earliest, w.due.Add(-by))
			}
		}
		slices.SortStableFunc(line.holds, func(a, b *hold) int { return a.due.Compare(b.due) })
		line.refreshLocked(now)
	}
}
