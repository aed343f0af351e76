// Package keyed is the one bounded table of keys: what a client knows of each server or
// customer.
package keyed

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heedhttp/heed/internal/hostkey"
)

// Most is how many keys a Table holds if its own Most is zero.
const Most = 1 << 16

const (
	firstSweep = 1 << 8 // how many entries there are when idle ones are looked for
	evictAmong = 32     // how many entries are looked at when the table is full
)

// A State is whether an entry may be forgotten.
type State int

const (
	Idle  State = iota // a new one would do as well
	Spare              // only if there is no room
	InUse              // never: a full Table grows rather
)

// IdleIf returns Idle or Spare.
func IdleIf(idle bool) State {
	if idle {
		return Idle
	}
	return Spare
}

// A Table keeps one V for each key, at most Most of them. A key that was used
// lately is found without a lock. The zero Table is ready to use, by any number of
// goroutines. It must not be copied.
type Table[V any] struct {
	Most int // how many keys there may be; it must not be changed after first use

	recent [64]atomic.Pointer[entry[V]]
	uses   atomic.Int64

	mu      sync.Mutex // guards what follows
	all     map[string]*entry[V]
	sweepAt int // how many entries there are when idle ones are looked for again
}

type entry[V any] struct {
	name  hostkey.Name
	used  atomic.Int64 // the number of its last use, among those of all entries
	value V
}

// Get returns key's V, a new one if there is none. state says which entries may be
// forgotten to make room: those that are Idle in passing, else the least recently used of
// some. It is called with the table locked.
func (t *Table[V]) Get(key hostkey.Name, state func(*V) State) *V {
	if v := t.latest(key); v != nil {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[key.Key]
	if e == nil {
		e = t.addLocked(key, state)
	}
	t.slot(key).Store(e)
	return t.use(e)
}

// Find returns key's V, or nil.
func (t *Table[V]) Find(key hostkey.Name) *V {
	if v := t.latest(key); v != nil {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[key.Key]
	if e == nil {
		return nil
	}
	t.slot(key).Store(e)
	return t.use(e)
}

// latest returns key's V if it is the one that was used last in its slot.
func (t *Table[V]) latest(key hostkey.Name) *V {
	if e := t.slot(key).Load(); e != nil && e.name.Key == key.Key {
		return t.use(e)
	}
	return nil
}

// use counts a use of e. That of one key again and again is counted once, so that it costs
// no writing.
func (t *Table[V]) use(e *entry[V]) *V {
	if e.used.Load() != t.uses.Load() {
		e.used.Store(t.uses.Add(1))
	}
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

func (t *Table[V]) addLocked(key hostkey.Name, state func(*V) State) *entry[V] {
	if t.all == nil {
		t.all, t.sweepAt = make(map[string]*entry[V]), firstSweep
	}
	switch {
	case len(t.all) >= t.most():
		t.evictLocked(state)
		if len(t.all) >= t.most() { // there were too many, all of them in use
			t.evictLocked(state)
		}
	case len(t.all) >= t.sweepAt:
		t.sweepLocked(state)
	}
	key.Key = strings.Clone(key.Key) // it may be a part of something large
	e := &entry[V]{name: key}
	e.used.Store(t.uses.Add(1))
	t.all[key.Key] = e
	return e
}

func (t *Table[V]) most() int {
	if t.Most == 0 {
		return Most
	}
	return t.Most
}

// sweepLocked forgets every idle entry, and looks again when the table has
// doubled, so that an addition costs the same however many there are.
func (t *Table[V]) sweepLocked(state func(*V) State) {
	for _, e := range t.all {
		if state(&e.value) == Idle {
			t.dropLocked(e)
		}
	}
	t.sweepAt = max(firstSweep, 2*len(t.all))
}

// evictLocked makes room in a full table: it looks at a few entries, as the map
// happens to order them, and forgets an idle one, else the least recently used.
func (t *Table[V]) evictLocked(state func(*V) State) {
	var oldest *entry[V]
	looked, idle := 0, false
	for _, e := range t.all {
		s := state(&e.value)
		if s != InUse && (oldest == nil || s == Idle && !idle || (s == Idle) == idle && e.used.Load() < oldest.used.Load()) {
			oldest, idle = e, s == Idle
		}
		if looked++; looked == evictAmong {
			break
		}
	}
	if oldest != nil {
		t.dropLocked(oldest)
	}
}

func (t *Table[V]) dropLocked(e *entry[V]) {
	delete(t.all, e.name.Key)
	t.slot(e.name).CompareAndSwap(e, nil)
}
