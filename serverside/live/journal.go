package live

import (
	"sync"
	"time"

	"github.com/heedhttp/heed/serverside"
)

// mostEntries is how many Events a journal keeps, and so how many a viewer who is slow
// gets at once.
const mostEntries = 64

// A journal keeps the latest Events. What comes while it is locked is lost, as is what a
// viewer has not fetched before it is overwritten.
type journal struct {
	mu   sync.Mutex // guards what follows
	ring [mostEntries]entry
	n    int64 // entries ever written
}

// An entry is an Event as it is shown: all that serverside says holds no secrets, and
// therefore not its error.
type entry struct {
	ID       int64    `json:"id"`
	At       int64    `json:"at"` // Unix milliseconds
	Kind     string   `json:"kind"`
	Rule     string   `json:"rule,omitempty"`
	Pattern  string   `json:"pattern,omitempty"`
	Policies []string `json:"policies,omitempty"`
	Limit    int64    `json:"limit,omitempty"`
	Key      string   `json:"key,omitempty"`
	Wait     int64    `json:"wait,omitempty"` // milliseconds
	Status   int      `json:"status,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Hash     string   `json:"hash,omitempty"`
}

func (j *journal) add(e serverside.Event, now time.Time) {
	shown := entry{At: now.UnixMilli(), Kind: e.Kind.String(), Rule: e.Rule, Pattern: e.Pattern, Policies: e.Policies,
		Limit: e.Limit, Key: e.Key, Wait: ceilMilli(e.Wait), Status: e.Status, Hash: e.Hash}
	if e.Kind == serverside.StoreFailed {
		shown.Mode = e.Mode.String()
	}
	if j.mu.TryLock() {
		j.n++
		shown.ID = j.n
		j.ring[j.n%mostEntries] = shown
		j.mu.Unlock()
	}
}

// after returns the entries after the one with that ID, as far as they are kept, the
// oldest first, and the ID of the last.
func (j *journal) after(id int64) (entries []entry, last int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := max(id, j.n-mostEntries) + 1; i <= j.n; i++ {
		entries = append(entries, j.ring[i%mostEntries])
	}
	return entries, j.n
}

func ceilMilli(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
