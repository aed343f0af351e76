package live

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/heedhttp/heed/internal/topk"
	"github.com/heedhttp/heed/serverside"
)

const (
	window    = 5 * time.Minute // keys are forgotten after one to two windows
	maxKeys   = 25              // keys that are shown
	maxQuotas = 4               // quotas of one key
)

// keys are the keys of one rule that are seen and denied most. A request that finds them locked
// is skipped: it must not wait, and the numbers are samples anyway.
type keys struct {
	mu     sync.Mutex // guards what follows
	start  time.Time  // start of the window
	seen   topk.Recent[quotas]
	denied topk.Recent[struct{}]
}

// A quota is what was left of a policy for a key when that policy was the tightest;
// Observations have only the tightest. Policies are told apart by their limits.
type quota struct {
	Remaining int64 `json:"remaining"`
	Limit     int64 `json:"limit"` // the most that fits at once; 0 for an unused entry
	At        int64 `json:"at"`    // Unix milliseconds
}

// quotas are the quotas of a key, in no order.
type quotas [maxQuotas]quota

// set replaces the quota with q's limit, or else the oldest one.
func (qs *quotas) set(q quota) {
	at := 0
	for i := range qs {
		if qs[i].Limit == q.Limit {
			at = i
			break
		}
		if qs[i].At < qs[at].At {
			at = i
		}
	}
	qs[at] = q
}

// known returns the quotas in use, the smallest first.
func (qs quotas) known() []quota {
	known := slices.DeleteFunc(qs[:], func(q quota) bool { return q.Limit == 0 })
	slices.SortFunc(known, func(a, b quota) int { return cmp.Compare(a.Limit, b.Limit) })
	return known
}

// sample records what is left according to o.
func (k *keys) sample(o serverside.Observation, now time.Time) {
	if o.Limit <= 0 {
		return
	}
	if key := o.Key(); k.mu.TryLock() {
		defer k.mu.Unlock()
		k.rotate(now)
		k.seen.Add(key).set(quota{o.Remaining, o.Limit, now.UnixMilli()})
	}
}

// deny counts a denial of key.
func (k *keys) deny(key string, now time.Time) {
	if k.mu.TryLock() {
		defer k.mu.Unlock()
		k.rotate(now)
		k.denied.Add(key)
	}
}

// rotate ends windows that are over. mu must be held.
func (k *keys) rotate(now time.Time) {
	start := now.Truncate(window)
	for range min(start.Sub(k.start)/window, 2) { // two rotations forget everything
		k.seen.Rotate()
		k.denied.Rotate()
		k.start = start
	}
}

// A keyStats is what the page shows about one key of a rule.
type keyStats struct {
	Rule    string  `json:"rule"`
	Pattern string  `json:"pattern"`
	Key     string  `json:"key"`
	Denied  int64   `json:"denied"` // a lower bound
	Quotas  []quota `json:"quotas"` // the smallest first
}

// all returns the stats of all keys of the rule n.
func (k *keys) all(n ruleName, now time.Time) (all []*keyStats) {
	k.mu.Lock()
	k.rotate(now)
	seen, denied := k.seen.Most(2*topk.Size), k.denied.Most(2*topk.Size)
	k.mu.Unlock()
	byKey := make(map[string]*keyStats, len(seen))
	of := func(key string) *keyStats {
		if byKey[key] == nil {
			byKey[key] = &keyStats{Rule: n.rule, Pattern: n.pattern, Key: key, Quotas: []quota{}}
			all = append(all, byKey[key])
		}
		return byKey[key]
	}
	for _, c := range seen {
		of(c.Key).Quotas = c.Value.known()
	}
	for _, c := range denied {
		of(c.Key).Denied = c.N
	}
	return all
}

// left returns the fraction that was left when the key was last seen.
func (k *keyStats) left() float64 {
	if len(k.Quotas) == 0 {
		return 1
	}
	last := slices.MaxFunc(k.Quotas, func(a, b quota) int { return cmp.Compare(a.At, b.At) })
	return float64(last.Remaining) / float64(last.Limit)
}

// top returns the keys to show: those with the most denials, then those with the least left.
func top(all []*keyStats) []*keyStats {
	slices.SortFunc(all, func(a, b *keyStats) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.left(), b.left()),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Rule, b.Rule))
	})
	return all[:min(len(all), maxKeys)]
}
