// Package keyed has the table in which a client stores what it knows about each server or customer.
// The number of its keys is bounded.
package keyed

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heedhttp/heed/internal/hostkey"
)

// Most is the limit of a Table whose own Most is zero.
const Most = 1 << 16

const (
	firstSweep = 1 << 8 // the number of entries at which idle ones are first removed
	evictAmong = 32     // how many entries are compared when the table is full
)

// A State says whether an entry may be removed.
type State int

const (
	Idle  State = iota // yes: it holds nothing
	Spare              // only if the table is full
	InUse              // no: the table grows instead
)

// IdleIf returns Idle or Spare.
func IdleIf(idle bool) State {
	if idle {
		return Idle
	}
	return Spare
}

// A Table has one V for each key, for at most Most keys. A recently used key is found without a
// lock. The zero Table is ready to use, and safe for concurrent use. It must not be copied.
type Table[V any] struct {
	Most int // the highest number of keys; must not change after first use

	recent [64]atomic.Pointer[entry[V]]
	uses   atomic.Int64

	mu      sync.Mutex // guards the fields below
	all     map[string]*entry[V]
	sweepAt int // the number of entries at which idle ones are removed next
}

type entry[V any] struct {
	name  hostkey.Name
	used  atomic.Int64 // when it was last used, counted in uses of all entries
	value V
}

// Get returns key's V, and adds one if there is none. state says which entries may be removed to
// make room: Idle ones from time to time; in a full table an Idle one or else one of the least
// recently used. It is called with the table locked.
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

// latest returns key's V if it is the one last used in its slot.
func (t *Table[V]) latest(key hostkey.Name) *V {
	if e := t.slot(key).Load(); e != nil && e.name.Key == key.Key {
		return t.use(e)
	}
	return nil
}

// use counts a use of e. Repeated use of the same key is counted once, so that it writes nothing.
func (t *Table[V]) use(e *entry[V]) *V {
	if e.used.Load() != t.uses.Load() {
		e.used.Store(t.uses.Add(1))
	}
	return &e.value
}

// Len returns the number of keys.
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
		if len(t.all) >= t.most() { // it had grown beyond its limit
			t.evictLocked(state)
		}
	case len(t.all) >= t.sweepAt:
		t.sweepLocked(state)
	}
	key.Key = strings.Clone(key.Key) // it may be a part of a large string
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

// sweepLocked removes all idle entries. It runs again when the table has doubled, so that the cost
// per added key stays constant.
func (t *Table[V]) sweepLocked(state func(*V) State) {
	for _, e := range t.all {
		if state(&e.value) == Idle {
			t.dropLocked(e)
		}
	}
	t.sweepAt = max(firstSweep, 2*len(t.all))
}

// evictLocked makes room in a full table. Among a few entries, in the map's random order, it
// removes an idle one, or else the least recently used.
func (t *Table[V]) evictLocked(state func(*V) State) {
	var oldest *entry[V]
	compared, idle := 0, false
	for _, e := range t.all {
		s := state(&e.value)
		if s != InUse && (oldest == nil || s == Idle && !idle || (s == Idle) == idle && e.used.Load() < oldest.used.Load()) {
			oldest, idle = e, s == Idle
		}
		if compared++; compared == evictAmong {
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
