package serverside

import (
	"sync"
	"time"
)

// A key with more than hotDenials denials within hotTime is hot.
const (
	hotDenials = 100
	hotTime    = time.Minute
)

// maxHotKeys bounds the keys that are watched.
const maxHotKeys = 1024

// hotKeys finds keys that are denied very often.
type hotKeys struct {
	mu   sync.Mutex
	keys map[string]*denials // guarded by mu
}

// denials are the denials of one key since a time.
type denials struct {
	since    time.Time
	n        int
	reported bool
}

// add counts a denial of key, and reports whether it makes the key hot.
func (h *hotKeys) add(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.keys[key]
	if d == nil {
		d = h.newEntry(key)
		d.since = now
	}
	if now.Sub(d.since) >= hotTime {
		*d = denials{since: now, reported: d.reported && d.n > hotDenials && now.Sub(d.since) < 2*hotTime}
	}
	d.n++
	if d.n <= hotDenials || d.reported {
		return false
	}
	d.reported = true
	return true
}

// newEntry adds an entry for key. If there are too many entries, it evicts the one with the
// fewest denials of a random few.
func (h *hotKeys) newEntry(key string) *denials {
	if h.keys == nil {
		h.keys = make(map[string]*denials)
	}
	if len(h.keys) >= maxHotKeys {
		h.forgetOne()
	}
	d := new(denials)
	h.keys[key] = d
	return d
}

func (h *hotKeys) forgetOne() {
	const sample = 8
	var least *denials
	var name string
	tried := 0
	for key, d := range h.keys { // in random order
		if least == nil || d.n < least.n {
			least, name = d, key
		}
		if tried++; tried == sample {
			break
		}
	}
	delete(h.keys, name)
}
