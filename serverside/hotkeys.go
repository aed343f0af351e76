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

// mostHot bounds the keys that are watched. A key that is hot is among them.
const mostHot = 1024

// hotKeys finds keys that are denied again and again.
type hotKeys struct {
	mu   sync.Mutex
	keys map[string]*denials // guarded by mu
}

// denials are those of one key since a time.
type denials struct {
	since    time.Time
	n        int
	reported bool
}

// add counts a denial of key, and reports whether it is the one that makes it hot.
func (h *hotKeys) add(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.keys[key]
	if d == nil {
		d = h.roomFor(key)
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

// roomFor makes an entry for key. If there are too many, the least of a few has to
// go.
func (h *hotKeys) roomFor(key string) *denials {
	if h.keys == nil {
		h.keys = make(map[string]*denials)
	}
	if len(h.keys) >= mostHot {
		h.forgetOne()
	}
	d := new(denials)
	h.keys[key] = d
	return d
}

func (h *hotKeys) forgetOne() {
	const few = 8
	var least *denials
	var name string
	tried := 0
	for key, d := range h.keys { // begins anywhere
		if least == nil || d.n < least.n {
			least, name = d, key
		}
		if tried++; tried == few {
			break
		}
	}
	delete(h.keys, name)
}
