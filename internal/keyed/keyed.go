// Package keyed is the one bounded table of keys: what a client knows of each server.
package keyed

import (
	"sync"
	"sync/atomic"

	"github.com/heedhttp/heed/internal/hostkey"
)

// Most is how many keys a Table holds.
const Most = 1 << 16

const (
	firstSweep = 1 << 8 // how many entries there are when idle ones are looked for
	evictAmong = 16     // how many entries are looked at when the table is full
)

// A Table keeps one V for each key, at most Most of them. A key that was used
// lately is found without a lock. The zero Table is ready to use, by any number of
// goroutines. It must not be copied.
type Table[V any] struct {
	recent [64]atomic.Pointer[entry[V]]

	mu      sync.Mutex // guards what follows
	all     map[string]*entry[V]
	sweepAt int // how many entries there are when idle ones are looked for again
}

type entry[V any] struct {
	name  hostkey.Name
	value V
}

// Get returns key's V, a new one if there is none. Those of which idle reports that a
// new one would do as well are forgotten in passing; it is called with the table locked.
func (t *Table[V]) Get(key hostkey.Name, idle func(*V) bool) *V {
	if e := t.slot(key).Load(); e != nil && e.name.Key == key.Key {
		return &e.value
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[key.Key]
	if e == nil {
		e = t.addLocked(key, idle)
	}
	t.slot(key).Store(e)
	return &e.value
}

// Find returns key's V, or nil.
func (t *Table[V]) Find(key hostkey.Name) *V {
	if e := t.slot(key).Load(); e != nil && e.name.Key == key.Key {
		return &e.value
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[key.Key]
	if e == nil {
		return nil
	}
	t.slot(key).Store(e)
	return &e.value
}

// Len reports how many keys there are.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

func (t *Table[V]) slot(key hostkey.Name) *atomic.Pointer[entry[V]] {
	return &t.recent[key.Hash%uint64(len(t.recent))]
}

func (t *Table[V]) addLocked(key hostkey.Name, idle func(*V) bool) *entry[V] {
	if t.all == nil {
		t.all, t.sweepAt = make(map[string]*entry[V]), firstSweep
	}
	switch {
	case len(t.all) >= Most:
		t.evictLocked(idle)
	case len(t.all) >= t.sweepAt:
		t.sweepLocked(idle)
	}
	e := &entry[V]{name: key}
	t.all[key.Key] = e
	return e
}

// sweepLocked forgets every idle entry, and looks again when the table has
// doubled, so that an addition costs the same however many there are.
func (t *Table[V]) sweepLocked(idle func(*V) bool) {
	for _, e := range t.all {
		if idle(&e.value) {
			t.dropLocked(e)
		}
	}
	t.sweepAt = max(firstSweep, 2*len(t.all))
}

// evictLocked makes room in a full table: it looks at a few entries, as the map
// happens to order them, and forgets the first idle one, else the last.
func (t *Table[V]) evictLocked(idle func(*V) bool) {
	var e *entry[V]
	looked := 0
	for _, e = range t.all {
		if looked++; looked == evictAmong || idle(&e.value) {
			break
		}
	}
	t.dropLocked(e)
}

func (t *Table[V]) dropLocked(e *entry[V]) {
	delete(t.all, e.name.Key)
	t.slot(e.name).CompareAndSwap(e, nil)
}
