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

// mostQuotas is of how many policies of a key is known what was left.
const mostQuotas = 4

// A quota is what was left of a policy for a key when it was the tightest: the others are
// not told of. Its limit is what tells it from them.
type quota struct {
	Remaining int64 `json:"remaining"`
	Limit     int64 `json:"limit"` // what fits at once; 0 if there is no such quota
	At        int64 `json:"at"`    // Unix milliseconds
}

// A state is what was left of a key's quotas, in no order.
type state [mostQuotas]quota

// note takes note of q, in the place of the one that is the oldest if there are too many.
func (s *state) note(q quota) {
	at := 0
	for i := range s {
		if s[i].Limit == q.Limit {
			at = i
			break
		}
		if s[i].At < s[at].At {
			at = i
		}
	}
	s[at] = q
}

// known are the quotas, the smallest first.
func (s *state) known() []quota {
	known := slices.DeleteFunc(slices.Clone(s[:]), func(q quota) bool { return q.Limit == 0 })
	slices.SortFunc(known, func(a, b quota) int { return cmp.Compare(a.Limit, b.Limit) })
	return known
}

// sample takes note of what o says is left.
func (k *keys) sample(o serverside.Observation, now time.Time) {
	if o.Limit <= 0 {
		return
	}
	if key := o.Key(); k.mu.TryLock() {
		k.seen.Add(key).note(quota{o.Remaining, o.Limit, now.UnixMilli()})
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

// A bucket is a key and what is known of its quotas.
type bucket struct {
	Rule    string  `json:"rule"`
	Pattern string  `json:"pattern"`
	Key     string  `json:"key"`
	Denied  int64   `json:"denied"` // at least
	Quotas  []quota `json:"quotas"` // the smallest first
}

// buckets are those of the keys that are known of n.
func (k *keys) buckets(n name) []bucket {
	k.mu.Lock()
	seen, denied := k.seen.Most(2*topk.Size), k.denied.Most(2*topk.Size)
	k.mu.Unlock()
	byKey := make(map[string]bucket, len(seen))
	for _, c := range seen {
		byKey[c.Key] = bucket{n.rule, n.pattern, c.Key, 0, c.Value.known()}
	}
	for _, c := range denied {
		b, found := byKey[c.Key]
		if !found {
			b = bucket{Rule: n.rule, Pattern: n.pattern, Key: c.Key, Quotas: []quota{}}
		}
		b.Denied = c.N
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

// left is the part that was left when the key was seen last.
func (b *bucket) left() float64 {
	if len(b.Quotas) == 0 {
		return 1
	}
	last := slices.MaxFunc(b.Quotas, func(a, b quota) int { return cmp.Compare(a.At, b.At) })
	return float64(last.Remaining) / float64(last.Limit)
}
