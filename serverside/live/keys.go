package live

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/heedhttp/heed/internal/topk"
	"github.com/heedhttp/heed/serverside"
)

// window is how old what is told of keys gets before it is forgotten, and at most twice
// as old.
const window = 5 * time.Minute

// mostKeys is how many are shown.
const mostKeys = 25

// keys are those of one rule that are seen and denied most. Whoever finds it locked goes
// on: one that is not counted matters less than one that waits.
type keys struct {
	mu     sync.Mutex // guards what follows
	seen   topk.Recent[state]
	denied topk.Recent[struct{}]
}

// A state is what was left of a key's quota at a moment.
type state struct {
	remaining, limit int64
	at               time.Time
}

// sample takes note of what o says is left.
func (k *keys) sample(o serverside.Observation, now time.Time) {
	if o.Limit <= 0 {
		return
	}
	if key := o.Key(); k.mu.TryLock() {
		*k.seen.Add(key) = state{o.Remaining, o.Limit, now}
		k.mu.Unlock()
	}
}

// deny counts a denial of key.
func (k *keys) deny(key string) {
	if k.mu.TryLock() {
		k.denied.Add(key)
		k.mu.Unlock()
	}
}

// rotate ends a window, or as many as are over.
func (k *keys) rotate(over int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range min(over, 2) {
		k.seen.Rotate()
		k.denied.Rotate()
	}
}

// A bucket is a key and what is known of its quota.
type bucket struct {
	Rule      string `json:"rule"`
	Pattern   string `json:"pattern"`
	Key       string `json:"key"`
	Denied    int64  `json:"denied"` // at least
	Remaining int64  `json:"remaining"`
	Limit     int64  `json:"limit"`        // 0 if not known
	At        int64  `json:"at,omitempty"` // when Remaining was left; Unix milliseconds
}

// buckets are those of the keys that are known of n.
func (k *keys) buckets(n name) []bucket {
	k.mu.Lock()
	seen, denied := k.seen.Most(2*topk.Size), k.denied.Most(2*topk.Size)
	k.mu.Unlock()
	byKey := make(map[string]bucket, len(seen))
	for _, c := range seen {
		s := c.Value
		byKey[c.Key] = bucket{n.rule, n.pattern, c.Key, 0, s.remaining, s.limit, s.at.UnixMilli()}
	}
	for _, c := range denied {
		b := byKey[c.Key]
		b.Rule, b.Pattern, b.Key, b.Denied = n.rule, n.pattern, c.Key, c.N
		byKey[c.Key] = b
	}
	all := make([]bucket, 0, len(byKey))
	for _, b := range byKey {
		all = append(all, b)
	}
	return all
}

// worst are the first of all buckets: those with most denials, then those with the least
// left.
func worst(all []bucket) []bucket {
	slices.SortFunc(all, func(a, b bucket) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.left(), b.left()), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Rule, b.Rule))
	})
	return all[:min(len(all), mostKeys)]
}

// left is the part that is left.
func (b *bucket) left() float64 {
	if b.Limit <= 0 {
		return 1
	}
	return float64(b.Remaining) / float64(b.Limit)
}
