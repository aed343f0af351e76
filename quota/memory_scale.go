package quota

import "sync"

// A scale is what states are counted in: parts, of which a rate is paid per tick,
// from the origin of a table on. A state is how many must have been paid for
// nothing to be owed any more. So what is owed is what the state exceeds the paid
// by, and a charge is one addition:
//
//	owed(now) = max(0, state - paid(now))
//	charge(n) = max(state, paid(now)) + n·unit
//
// A FixedWindow pays nothing until it ends, and then more than is owed: what is
// paid stands still from the beginning of a window, and a rate is more than what a
// window's state owes.
type scale struct {
	tick int64 // µs
	unit int64 // parts of a unit of quota
	rate int64
	span int64 // µs that a window lasts at most; 0 of buckets
}

const (
	// scaleBits are the bits of a tag that say in what scale its state is.
	scaleBits = 12
	scaleMask = 1<<scaleBits - 1

	// noScale is the number of none, which what does not fit in a state has.
	noScale = 0

	// aside is the number of another none: the state is the place of an account.
	aside = 1

	// maxAge is how long, in µs, states are counted from one origin.
	maxAge = 3_600_000_000
)

// scales are those in which anything in this process was ever counted.
var scales scaleNumbers

// scaleNumbers are scales by their numbers. They are few, and written once, before
// anybody is told the number.
type scaleNumbers struct {
	known [1 << scaleBits]scale

	mu      sync.Mutex
	numbers map[scale]uint64 // guarded by mu
}

// of returns the number of s, or noScale if there are too many others.
func (n *scaleNumbers) of(s scale) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if number, ok := n.numbers[s]; ok {
		return number
	}
	number := uint64(len(n.numbers)) + aside + 1
	if number > scaleMask {
		return noScale
	}
	if n.numbers == nil {
		n.numbers = make(map[scale]uint64)
	}
	n.numbers[s], n.known[number] = number, s
	return number
}

// scaleOf returns the scale of a tag.
func scaleOf(tag uint64) *scale { return &scales.known[tag&scaleMask] }

// fits reports whether states have room for most parts owed at any time at which
// they are counted from one origin.
func (s scale) fits(most int64) bool {
	return s.rate <= (maxState-most)/((maxAge+s.span)/s.tick+1)
}

// base is when nothing was paid, in a table of this origin: early enough for the
// window that the origin is in.
func (s *scale) base(origin int64) int64 { return origin - s.span }

// ticks returns how many are in so many µs.
func (s *scale) ticks(us int64) int64 {
	if s.tick == 1 { // as nearly always, and a division takes its time
		return us
	}
	return us / s.tick
}

// unpack sets b, which is zero, to what a state of a table of this origin, no more
// than maxAge ago, owes at now.
func (s *scale) unpack(b *Bucket, state, origin, now int64) {
	ticks := s.ticks(max(0, now-origin))
	if s.span > 0 {
		ticks = state / s.rate
	}
	b.Time, b.Level, b.Unit = s.base(origin)+ticks*s.tick, max(0, state-ticks*s.rate), s.unit
}

// paid returns the largest state of a bucket, in a table of this origin, that owes
// nothing at now.
func (s *scale) paid(origin, now int64) int64 {
	ticks := s.ticks(max(0, now-origin))
	if ticks > maxState/s.rate {
		return maxState
	}
	return ticks * s.rate
}

// over returns when the window of a state is over at the latest.
func (s *scale) over(state, origin int64) int64 {
	return s.base(origin) + state/s.rate*s.tick + s.span
}

// moved returns a state as it is in a table whose origin is later by so many µs,
// which are whole seconds. What was owed before that is owed no more.
func (s *scale) moved(state, later int64) int64 {
	ticks := later / s.tick
	if ticks > state/s.rate {
		return 0
	}
	return state - ticks*s.rate
}
