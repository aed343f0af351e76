package heed

import (
	"sync"
	"sync/atomic"

	"github.com/heedhttp/heed/internal/hostkey"
)

// rows keeps one R for each key, at most maxRows of them. A key that was used
// lately is found without a lock. The zero value is ready to use.
type rows[R any] struct {
	recent [64]atomic.Pointer[row[R]]

	mu      sync.Mutex // guards what follows
	all     map[string]*row[R]
	sweepAt int // how many rows there are when idle ones are looked for again
}

type row[R any] struct {
	name hostkey.Name
	val  R
}

const (
	maxRows    = 1 << 16
	firstScan  = 1 << 8
	evictAmong = 16
)

// recall returns key's R if it was used lately, else nil. It takes no lock.
func (rs *rows[R]) recall(key hostkey.Name) *R {
	if r := rs.slot(key).Load(); r != nil && r.name.Key == key.Key {
		return &r.val
	}
	return nil
}

// get returns key's R, a new one if there is none. Rows of which idle reports
// that a new one would do as well are forgotten in passing.
func (rs *rows[R]) get(key hostkey.Name, idle func(*R) bool) *R {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[key.Key]
	if r == nil {
		r = rs.addLocked(key, idle)
	}
	rs.slot(key).Store(r)
	return &r.val
}

func (rs *rows[R]) slot(key hostkey.Name) *atomic.Pointer[row[R]] {
	return &rs.recent[key.Hash%uint64(len(rs.recent))]
}

// find returns key's R, or nil.
func (rs *rows[R]) find(key string) *R {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.all[key]; r != nil {
		return &r.val
	}
	return nil
}

func (rs *rows[R]) addLocked(key hostkey.Name, idle func(*R) bool) *row[R] {
	if rs.all == nil {
		rs.all, rs.sweepAt = make(map[string]*row[R]), firstScan
	}
	switch {
	case len(rs.all) >= maxRows:
		rs.evictLocked(idle)
	case len(rs.all) >= rs.sweepAt:
		rs.sweepLocked(idle)
	}
	r := &row[R]{name: key}
	rs.all[key.Key] = r
	return r
}

// sweepLocked forgets every idle row, and looks again when the table has
// doubled, so that an addition costs the same however many there are.
func (rs *rows[R]) sweepLocked(idle func(*R) bool) {
	for _, r := range rs.all {
		if idle(&r.val) {
			rs.dropLocked(r)
		}
	}
	rs.sweepAt = max(firstScan, 2*len(rs.all))
}

// evictLocked makes room in a full table: it looks at a few rows, as the map
// happens to order them, and forgets the first idle one, else the last.
func (rs *rows[R]) evictLocked(idle func(*R) bool) {
	var r *row[R]
	looked := 0
	for _, r = range rs.all {
		if looked++; looked == evictAmong || idle(&r.val) {
			break
		}
	}
	rs.dropLocked(r)
}

func (rs *rows[R]) dropLocked(r *row[R]) {
	delete(rs.all, r.name.Key)
	rs.slot(r.name).CompareAndSwap(r, nil)
}
