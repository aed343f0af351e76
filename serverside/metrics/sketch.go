package metrics

import (
	"cmp"
	"slices"
	"strings"
)

// A sketch counts the most frequent of any number of keys in bounded memory, as the
// algorithm Space-Saving does (Metwally, Agrawal, El Abbadi: Efficient Computation
// of Frequent and Top-k Elements in Data Streams, 2005). A key that is more than
// one of mostKeys in all that was added is among them. The zero value is empty.
type sketch struct {
	slots []slot
	index map[string]int // of slots
}

// A slot is a key and its count, which is too high by over at most: over was
// another's.
type slot struct {
	key     string
	n, over int64
}

func (s *sketch) add(key string) {
	if i, ok := s.index[key]; ok {
		s.slots[i].n++
		return
	}
	if s.index == nil {
		s.index = make(map[string]int)
	}
	i := len(s.slots)
	if i < mostKeys {
		s.slots = append(s.slots, slot{})
	} else {
		i = s.least()
		delete(s.index, s.slots[i].key)
	}
	s.slots[i] = slot{key: key, n: s.slots[i].n + 1, over: s.slots[i].n}
	s.index[key] = i
}

// least returns the slot that has to go.
func (s *sketch) least() int {
	least := 0
	for i := range s.slots {
		if s.slots[i].n < s.slots[least].n {
			least = i
		}
	}
	return least
}

// A tally is how often a key was added at least.
type tally struct {
	key string
	n   int64
}

// mostOf returns the up to n most frequent keys of sketches, in order.
func mostOf(n int, sketches ...*sketch) []tally {
	if n <= 0 {
		return nil
	}
	sum := make(map[string]int64)
	for _, s := range sketches {
		for _, slot := range s.slots {
			sum[slot.key] += slot.n - slot.over
		}
	}
	all := make([]tally, 0, len(sum))
	for key, n := range sum {
		all = append(all, tally{key, n})
	}
	slices.SortFunc(all, func(a, b tally) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.key, b.key))
	})
	return all[:min(n, len(all))]
}
