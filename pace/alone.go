package pace

import (
	"context"
	"math"
	"math/bits"
	"sync"

	"github.com/heedhttp/heed/quota"
)

// mostDebts is for how many keys it is remembered what they spent alone.
const mostDebts = 65_536

// debts are the units of each key that were spent while the Store failed, and
// that it has not been told of. The zero debts are none.
type debts struct {
	mu    sync.Mutex // guards all below, and each debt's units
	byKey map[string]*debt
}

type debt struct {
	units  int64
	paying chan struct{} // holds an element while somebody pays
}

// add makes key's debt n units more, or less if n is negative. If there are too
// many, any other is forgotten.
func (d *debts) add(key string, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byKey[key]
	if one == nil {
		if n <= 0 {
			return
		}
		one = d.openLocked(key)
	}
	if one.units += min(n, math.MaxInt64-max(one.units, 0)); one.units <= 0 {
		delete(d.byKey, key)
	}
}

func (d *debts) openLocked(key string) *debt {
	if d.byKey == nil {
		d.byKey = make(map[string]*debt)
	}
	if len(d.byKey) >= mostDebts {
		for other := range d.byKey {
			delete(d.byKey, other)
			break
		}
	}
	one := &debt{paying: make(chan struct{}, 1)}
	d.byKey[key] = one
	return one
}

// pay calls f with what key has spent, if it has, and forgets that if f does it.
// Those who come meanwhile wait, so that nobody is ahead of the debt.
func (d *debts) pay(ctx context.Context, key string, f func(n int64) error) error {
	d.mu.Lock()
	one := d.byKey[key]
	d.mu.Unlock()
	if one == nil {
		return nil
	}
	select {
	case one.paying <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-one.paying }()
	d.mu.Lock()
	n := one.units
	d.mu.Unlock()
	if n <= 0 {
		return nil // another was first
	}
	err := f(n)
	if err == nil {
		d.add(key, -n)
	}
	return err
}

// repay has the Store count what key spent alone: n units, but no more than
// would be owed still if this process had gone on alone. What was spent longer
// ago has come back since.
func (s *Shared) repay(ctx context.Context, key string, n int64) error {
	owed, err := s.memory.Peek(ctx, nil, s.local.charges(key, 0, noTime)...)
	if err != nil {
		return err
	}
	charges := s.remote.charges(key, 0, noTime)
	for i := range charges {
		charges[i].N = min(n, spent(s.local.limits[i].Policy(), owed[i]))
	}
	return s.remote.store.Settle(ctx, charges...)
}

// spent is how many units of p have not come back yet at d, rounded up.
func spent(p quota.Policy, d quota.Decision) int64 {
	hi, lo := bits.Mul64(uint64(d.ResetAfter), uint64(p.Quota))
	if hi >= uint64(p.Window) {
		return math.MaxInt64
	}
	units, rest := bits.Div64(hi, lo, uint64(p.Window))
	if rest > 0 {
		units++
	}
	return int64(min(units, math.MaxInt64))
}
