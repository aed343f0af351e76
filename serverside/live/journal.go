package live

import (
	"sync"
	"time"

	"github.com/heedhttp/heed/serverside"
)

// mostEntries is how many Events a journal keeps, and so how many a viewer who is slow
// gets at once.
const mostEntries = 64

// A journal keeps the latest Events. What a viewer has not fetched before it is
// overwritten, he does not see.
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

// add writes e.
func (j *journal) add(e serverside.Event, now time.Time) {
	shown := shownOf(e, now)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.write(shown)
}

// offer writes e unless that has to be waited for: one of many denials is less than a
// request that is held up.
func (j *journal) offer(e serverside.Event, now time.Time) {
	if shown := shownOf(e, now); j.mu.TryLock() {
		defer j.mu.Unlock()
		j.write(shown)
	}
}

// write is called with mu held.
func (j *journal) write(e entry) {
	j.n++
	e.ID = j.n
	j.ring[j.n%mostEntries] = e
}

func shownOf(e serverside.Event, now time.Time) entry {
	shown := entry{At: now.UnixMilli(), Kind: e.Kind.String(), Rule: e.Rule, Pattern: e.Pattern, Policies: e.Policies,
		Limit: e.Limit, Key: e.Key, Wait: ceilMilli(e.Wait), Status: e.Status, Hash: e.Hash}
	if e.Kind == serverside.StoreFailed {
		shown.Mode = e.Mode.String()
	}
	return shown
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
