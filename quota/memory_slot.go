package quota

import "sync/atomic"

// A slot keeps one bucket, or an ID, in 16 bytes without a pointer:
//
//	tag:   hash 52 | scale 12                 0 if the slot is empty
//	word: state 55 | check 6 | turn 2 | held 1
//
// Tag and check are all the bits of a hash but those that choose the shard. The
// turn changes whenever the tag does.
//
// Only who has locked the shard changes a tag, and only while the slot is held.
// Anybody may replace the state in a word that is not held, in one step, if he read
// the tag after the word: for as long as the rest of the word is what it was, so is
// the tag. Who finds a slot held waits for the shard's lock.
type slot struct{ tag, word atomic.Uint64 }

const (
	held       = 1
	turnMask   = 3 << 1
	nextTurn   = 1 << 1
	checkMask  = 63 << 3
	stateShift = 9
	stateBits  = 64 - stateShift
	marks      = 1<<stateShift - 1 // all of a word but the state

	// maxState is the largest state there is room for.
	maxState = 1<<stateBits - 1
)

// tag returns that of h, whose state is counted in a scale.
func (h hash) tag(scale uint64) uint64 { return uint64(h)&^scaleMask | scale }

// check returns the bits of h that are neither in a tag nor choose the shard, where
// a word has them.
func (h hash) check() uint64 { return uint64(h) >> 3 & checkMask }

// aside reports whether s's state is kept elsewhere, so that nobody writes its word
// but who has locked the shard: it need not be held.
func (s *slot) aside() bool { return s.tag.Load()&scaleMask == aside }

// hold keeps s from being written by others, and returns its word.
func (s *slot) hold() (word uint64) {
	for {
		word = s.word.Load()
		if s.holdIf(word) {
			return word
		}
	}
}

// holdIf is hold if s's word is this one still.
func (s *slot) holdIf(word uint64) bool {
	return s.aside() || s.word.CompareAndSwap(word, word|held)
}

// release lets s go, which was held, with a word.
func (s *slot) release(word uint64) {
	if !s.aside() {
		s.word.Store(word)
	}
}

// let lets s go, which was held, to a tenant, who may be the one it has.
func (s *slot) let(tag, check uint64, state int64) {
	turn := s.word.Load() & turnMask
	if s.tag.Load() != tag {
		turn = (turn + nextTurn) & turnMask
		s.word.Store(turn | held)
		s.tag.Store(tag)
	}
	s.word.Store(uint64(state)<<stateShift | check | turn)
}

// stateOf returns the state in a word.
func stateOf(word uint64) int64 { return int64(word >> stateShift) }
