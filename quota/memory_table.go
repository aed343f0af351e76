package quota

import (
	"math"
	"math/bits"
)

const (
	// A table is made anew when more than fullest 64ths of its slots are taken, with
	// emptiest 64ths taken: so 16·64/emptiest bytes are what a slot takes at most.
	fullest  = 50
	emptiest = 45

	// A small one, which is in a cache anyway, has fewer taken, and nearly all of
	// them where they belong.
	small         = 1024
	fullestSmall  = 32
	emptiestSmall = 24

	fewestSlots = 8

	// slotsPerLine are those of a cache line of 64 bytes.
	slotsPerLine = 4
)

// A table finds slots by their hashes, in an array in which each slot is where its
// tag belongs, or behind that with nothing empty between.
//
// Who has locked the shard may do anything with it. Others may read: they find what
// is there and does not move. Who finds nothing asks again with the lock. All slots
// of a table that was replaced are held for ever.
type table struct {
	slots  []slot
	origin int64 // of the states, in µs since the Unix epoch; a whole second
	taken  int   // of slots; guarded by the shard's lock
}

// nothing is the table of a shard that has none yet.
var nothing = &table{slots: make([]slot, 1), origin: math.MaxInt64}

// newTable returns one for so many tenants, and some more.
func newTable(tenants int, origin int64) *table {
	slots := max(fewestSlots, tenants*64/emptiestSmall+1)
	if slots > small {
		slots = max(small, tenants*64/emptiest+1)
	}
	return &table{slots: make([]slot, slots), origin: origin}
}

// roomy reports whether there is room for another tenant.
func (t *table) roomy() bool {
	n := len(t.slots)
	if n < small {
		return (t.taken+1)*64 <= n*fullestSmall
	}
	return (t.taken+1)*64 <= n*fullest
}

// home is where a tag belongs: in a table that is not small, at the beginning of a
// cache line, so that seven of eight tenants are in the line that is fetched first.
// To fetch another takes longer than to look at all of that one.
func (t *table) home(tag uint64) int {
	n, _ := bits.Mul64(tag&^scaleMask, uint64(len(t.slots)))
	if len(t.slots) >= small {
		n &^= slotsPerLine - 1
	}
	return int(n)
}

// next is the place after i.
func (t *table) next(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// read returns the slot of a tag and a check, and its word, or nil. It needs no
// lock, and what it returns may be held.
func (t *table) read(tag, check uint64) (s *slot, word uint64) {
	for i := t.home(tag); ; i = t.next(i) {
		s = &t.slots[i]
		word = s.word.Load() // before the tag
		switch s.tag.Load() {
		case tag:
			if word&checkMask == check {
				return s, word
			}
		case 0:
			return nil, 0
		}
	}
}

// find returns the place of h, in whatever scale it is counted, or -1.
func (t *table) find(h hash) int {
	for i := t.home(uint64(h)); ; i = t.next(i) {
		s := &t.slots[i]
		switch tag := s.tag.Load(); {
		case tag == 0:
			return -1
		case (tag^uint64(h))>>scaleBits == 0 && s.word.Load()&checkMask == h.check():
			return i
		}
	}
}

// add gives an empty slot to a new tenant.
func (t *table) add(tag, check uint64, state int64) {
	i := t.home(tag)
	for t.slots[i].tag.Load() != 0 {
		i = t.next(i)
	}
	t.slots[i].hold()
	t.slots[i].let(tag, check, state)
	t.taken++
}

// remove makes the slot at i, which is held, empty, and moves those forward that are
// behind where they belong because of it.
func (t *table) remove(i int) {
	for j := t.next(i); t.slots[j].tag.Load() != 0; j = t.next(j) {
		if t.belongs(j, i) {
			word := t.slots[j].hold()
			t.slots[i].let(t.slots[j].tag.Load(), word&checkMask, stateOf(word))
			i = j
		}
	}
	t.slots[i].let(0, 0, 0)
	t.taken--
}

// belongs reports whether the tenant at j may be at i as well, which is before j:
// whether his home is not behind i.
func (t *table) belongs(j, i int) bool {
	home := t.home(t.slots[j].tag.Load())
	if home <= j {
		return home <= i && i < j
	}
	return home <= i || i < j // he is at the beginning, for want of room at the end
}
