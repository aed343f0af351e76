package pace

import (
	"sync"
	"time"
)

// maxHolds is how many requests' holds are remembered. There are more only if
// requests are not observed, or more are under way than a process can have connections.
const maxHolds = 65_536

// A hold is what a request has taken, until it is observed.
type hold struct {
	from     *counter
	key      string
	n        int64
	at       time.Time // for the Store
	due      time.Time // when it may be used
	mirrored bool      // from the Store, and from the share too
	next     *hold     // an older one of the same key and n
}

type holdID struct {
	key string
	n   int64
}

// holds are those of requests that are under way. A Pacer around the Shared may have
// copied the request that Wait gets, so requests are known by their key and cost: which
// of several alike it is does not matter. The zero holds are none.
type holds struct {
	mu  sync.Mutex // guards what follows
	ids map[holdID]*hold
	len int
}

// add remembers h. If there are too many, the others are forgotten: what they took stays
// taken.
func (hs *holds) add(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.ids == nil || hs.len >= maxHolds {
		hs.ids, hs.len = make(map[holdID]*hold), 0
	}
	id := holdID{h.key, h.n}
	h.next = hs.ids[id]
	hs.ids[id] = h
	hs.len++
}

// remove returns the newest hold of n units of key, once; nil if there is none. It is the
// newest because what is not sent is given back soon, and only to the window that it was
// taken from.
func (hs *holds) remove(key string, n int64) *hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	id := holdID{key, n}
	h := hs.ids[id]
	switch {
	case h == nil:
		return nil
	case h.next == nil:
		delete(hs.ids, id)
	default:
		hs.ids[id] = h.next
	}
	hs.len--
	return h
}
