// Package topk counts the most frequent of any number of keys in bounded memory. It uses the
// algorithm Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k
// Elements in Data Streams, 2005).
package topk

import (
	"cmp"
	"slices"
	"strings"
)

// Size is the number of keys that are counted at a time.
const Size = 128

// A Recent counts the keys of the current window and of the one before, with a value V for each key.
// The zero Recent is empty. It is not safe for concurrent use.
type Recent[V any] struct{ now, before sketch[V] }

// Add counts key once and returns its value, which is zero if key is new to the window. The pointer is
// valid until the next Add or Rotate.
func (r *Recent[V]) Add(key string) *V { return r.now.add(key) }

// Rotate starts a new window, and forgets the window before the last.
func (r *Recent[V]) Rotate() { r.now, r.before = sketch[V]{}, r.now }

// A Count is a lower bound on how often a key was added, and the key's latest value.
type Count[V any] struct {
	Key   string
	N     int64
	Value V
}

// Most returns up to n of the most frequent keys, in order. It includes every key that is more than
// 1/Size of all additions in a window, unless n others are more frequent.
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
	index map[string]int // key to index in slots
}

// A slot is a key and its count. The count is at most over too high, because over was counted for
// another key.
type slot[V any] struct {
	key     string
	n, over int64
	value   V
}

func (s *sketch[V]) add(key string) *V {
	i, ok := s.index[key]
	if !ok {
		i = s.newSlot(key)
	}
	s.slots[i].n++
	return &s.slots[i].value
}

// newSlot returns a slot for key. If all are in use, it takes over the slot with the lowest count,
// and its count.
func (s *sketch[V]) newSlot(key string) int {
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

// least returns the slot with the lowest count.
func (s *sketch[V]) least() int {
	least := 0
	for i := range s.slots {
		if s.slots[i].n < s.slots[least].n {
			least = i
		}
	}
	return least
}
