package pace

import (
	"sync"
	"time"
)

// maxHolds is the number of holds to remember. More exist only if requests are not
// observed, or if more are in flight than a process can have connections.
const maxHolds = 65_536

// A hold is what a request has taken, until it is observed.
type hold struct {
	from     *counter
	key      string
	n        int64
	at       time.Time // for the Store
	due      time.Time // when it may be used
	mirrored bool      // taken from the Store, and from the share as well
	next     *hold     // an older hold of the same key and n
}

type holdID struct {
	key string
	n   int64
}

// holds are the holds of requests in flight. A Pacer around the Shared may have copied
// the request, so a hold is found by key and cost; which one of several alike does not
// matter. The zero holds is ready to use.
type holds struct {
	mu  sync.Mutex // guards all below
	ids map[holdID]*hold
	len int
}

// add remembers h. At maxHolds it forgets all others, whose units are then not given
// back.
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

// remove returns and forgets the newest hold of n units of key, or nil. The newest,
// because units of a request that was not sent come back soon, and must go back to the
// window that they were taken from.
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
