package pace

import (
	"math"
	"time"
)

// slots is into how many parts a window is divided to remember what was spent.
const slots = 64

// A slide is what this process spent of a policy that slides, in the last window:
// each unit comes back a window after it was spent. That is what a SlidingLog does,
// and what a SlidingWindow does of units that were spent evenly.
type slide struct {
	window time.Duration
	exact  bool               // however unevenly they were spent
	newest int64              // the number of the newest slot, since 1970
	spent  [slots + 1]float64 // in the newest slot and those before, in a ring
}

func (s *slide) slot() time.Duration { return s.window/slots + 1 }

// of returns which slot t is in, and how much of it is before t.
func (s *slide) of(t time.Time) (number int64, before float64) {
	slot := int64(s.slot())
	number = t.UnixNano() / slot
	return number, float64(t.UnixNano()-number*slot) / float64(slot)
}

// at is what was spent in a slot, as far as that is remembered.
func (s *slide) at(number int64) float64 {
	if number > s.newest || number < s.newest-slots || number < 0 {
		return 0
	}
	return s.spent[number%(slots+1)]
}

// spend counts units that were spent at t; less than none, if they were not after all.
func (s *slide) spend(units int64, t time.Time) {
	number, _ := s.of(t)
	for number > s.newest {
		s.newest = max(s.newest+1, number-slots)
		s.spent[s.newest%(slots+1)] = 0
	}
	if number >= s.newest-slots && number >= 0 {
		n := &s.spent[number%(slots+1)]
		*n = max(0, *n+float64(units))
	}
}

// returns is how many units come back between two moments.
func (s *slide) returns(from, to time.Time) (units float64) {
	if !from.Before(to) {
		return 0
	}
	i, before := s.of(from.Add(-s.window))
	last, part := s.of(to.Add(-s.window))
	units = s.at(last)*part - s.at(i)*before
	for i, last = max(i, s.newest-slots), min(last, s.newest+1); i < last; i++ {
		units += s.at(i)
	}
	return max(0, units)
}

// during is what comes back in the time of one slot, which begins so far in the slot
// of that number.
func (s *slide) during(number int64, before float64) float64 {
	return s.at(number)*(1-before) + s.at(number+1)*before
}

// rate is the fastest even rate at which units do not run out in a window's time: now
// there are spare ones, and others come back when they do. Less than an eighth of it
// is not looked at, since what comes back then is a matter of single units.
func (s *slide) rate(spare float64, now time.Time) float64 {
	number, before := s.of(now.Add(-s.window))
	rate, there, slot := math.Inf(1), spare, s.slot().Seconds()
	for i := range int64(slots) {
		there += s.during(number+i, before)
		if i+1 >= slots/8 {
			rate = min(rate, there/(float64(i+1)*slot))
		}
	}
	return rate
}

// wait is how long after now it is until so many units have come back; a window if
// they will not have.
func (s *slide) wait(units float64, now time.Time) time.Duration {
	number, before := s.of(now.Add(-s.window))
	for i := range int64(slots) {
		if units -= s.during(number+i, before); units <= 0 {
			return time.Duration(i+1) * s.slot()
		}
	}
	return s.window
}
