package live

import (
	"sync"
	"time"

	"github.com/heedhttp/heed/serverside"
)

// maxEntries is how many Events a journal keeps, and the most that a slow viewer gets at once.
const maxEntries = 64

// A journal keeps the latest Events. A viewer misses Events that are overwritten before it
// reads them.
type journal struct {
	mu   sync.Mutex // guards what follows
	ring [maxEntries]entry
	n    int64 // entries ever written
}

// An entry is an Event as the page shows it, without its error, which may contain secrets.
type entry struct {
	ID       int64    `json:"id"`
	At       int64    `json:"at"` // Unix milliseconds
	Kind     string   `json:"kind"`
	Rule     string   `json:"rule,omitempty"`
	Pattern  string   `json:"pattern,omitempty"`
	Policies []string `json:"policies,omitempty"`
	Limit    int64    `json:"limit,omitempty"`
	Key      string   `json:"key,omitempty"`
	Wait     int64    `json:"wait,omitempty"` // milliseconds, rounded up
	Status   int      `json:"status,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Hash     string   `json:"hash,omitempty"`
}

// add writes e.
func (j *journal) add(e serverside.Event, now time.Time) {
	shown := entry{At: now.UnixMilli(), Kind: e.Kind.String(), Rule: e.Rule, Pattern: e.Pattern, Policies: e.Policies,
		Limit: e.Limit, Key: e.Key, Status: e.Status, Hash: e.Hash,
		Wait: int64((e.Wait + time.Millisecond - 1) / time.Millisecond)}
	if e.Kind == serverside.StoreFailed {
		shown.Mode = e.Mode.String()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.n++
	shown.ID = j.n
	j.ring[j.n%maxEntries] = shown
}

// after returns the kept entries after the one with this ID, the oldest first, and the ID of
// the last one.
func (j *journal) after(id int64) (entries []entry, last int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := max(id, j.n-maxEntries) + 1; i <= j.n; i++ {
		entries = append(entries, j.ring[i%maxEntries])
	}
	return entries, j.n
}
