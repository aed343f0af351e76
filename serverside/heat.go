package serverside

import (
	"sync"
	"time"
)

// hotDenials is how many denials of one key within hotTime are no alarm yet.
const (
	hotDenials = 100
	hotTime    = time.Minute
)

// mostHeat bounds the keys that are watched. A key that is hot is among them.
const mostHeat = 1024

// A heat finds keys that are denied again and again.
type heat struct {
	mu   sync.Mutex
	keys map[string]*warmth // guarded by mu
}

// A warmth is one key's denials since a time.
type warmth struct {
	since time.Time
	n     int
	told  bool
}

// add counts a denial of key, and reports whether it is the one that makes it hot.
func (h *heat) add(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.keys[key]
	if w == nil {
		w = h.roomFor(key)
		w.since = now
	}
	if now.Sub(w.since) >= hotTime {
		*w = warmth{since: now, told: w.told && w.n > hotDenials && now.Sub(w.since) < 2*hotTime}
	}
	w.n++
	if w.n <= hotDenials || w.told {
		return false
	}
	w.told = true
	return true
}

// roomFor makes an entry for key. If there are too many, the least of a few has to
// go.
func (h *heat) roomFor(key string) *warmth {
	if h.keys == nil {
		h.keys = make(map[string]*warmth)
	}
	if len(h.keys) >= mostHeat {
		h.forgetOne()
	}
	w := new(warmth)
	h.keys[key] = w
	return w
}

func (h *heat) forgetOne() {
	const few = 8
	var least *warmth
	var name string
	tried := 0
	for key, w := range h.keys { // begins anywhere
		if least == nil || w.n < least.n {
			least, name = w, key
		}
		if tried++; tried == few {
			break
		}
	}
	delete(h.keys, name)
}
