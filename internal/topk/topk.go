// Package topk counts the most frequent of any number of keys in bounded memory, as
// the algorithm Space-Saving does (Metwally, Agrawal, El Abbadi: Efficient Computation
// of Frequent and Top-k Elements in Data Streams, 2005).
package topk

import (
	"cmp"
	"slices"
	"strings"
)

// Size bounds the keys that are counted at a time.
const Size = 128

// A Recent counts the keys of this window and of the one before. What is kept with
// each key is a V. The zero value is empty. It is not safe for concurrent use.
type Recent[V any] struct{ now, before sketch[V] }

// Add counts key once, and returns what is kept with it until the next Add or Rotate:
// the zero V for a key that is new to the window.
func (r *Recent[V]) Add(key string) *V { return r.now.add(key) }

// Rotate ends the window, and forgets the one before.
func (r *Recent[V]) Rotate() { r.now, r.before = sketch[V]{}, r.now }

// A Count is how often a key was added at least, and what was kept with it last.
type Count[V any] struct {
	Key   string
	N     int64
	Value V
}

// Most returns the up to n most frequent keys, in order. A key that is more than one
// of Size in all that was added to a window is counted in it.
func (r *Recent[V]) Most(n int) []Count[V] {
	if n <= 0 {
		return nil
	}
	sum := make(map[string]Count[V], len(r.now.slots)+len(r.before.slots))
	for _, s := range [...]*sketch[V]{&r.before, &r.now} {
		for _, slot := range s.slots {
			sum[slot.key] = Count[V]{slot.key, sum[slot.key].N + slot.n - slot.over, slot.value}
		}
	}
	all := make([]Count[V], 0, len(sum))
	for _, c := range sum {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Count[V]) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

// A sketch counts the keys of one window.
type sketch[V any] struct {
	slots []slot[V]
	index map[string]int // of slots
}

// A slot is a key and its count, which is too high by over at most: over was
// another's.
type slot[V any] struct {
	key     string
	n, over int64
	value   V
}

func (s *sketch[V]) add(key string) *V {
	i, ok := s.index[key]
	if !ok {
		i = s.roomFor(key)
	}
	s.slots[i].n++
	return &s.slots[i].value
}

// roomFor returns a slot for key. If there are too many, it inherits the count of the
// one that has to go.
func (s *sketch[V]) roomFor(key string) int {
	if s.index == nil {
		s.index = make(map[string]int)
	}
	i := len(s.slots)
	if i < Size {
		s.slots = append(s.slots, slot[V]{})
	} else {
		i = s.least()
		delete(s.index, s.slots[i].key)
	}
	s.slots[i] = slot[V]{key: key, n: s.slots[i].n, over: s.slots[i].n}
	s.index[key] = i
	return i
}

// least returns the slot that has to go.
func (s *sketch[V]) least() int {
	least := 0
	for i := range s.slots {
		if s.slots[i].n < s.slots[least].n {
			least = i
		}
	}
	return least
}
