package pace

import (
	"context"
	"math"
	"math/bits"
	"sync"

	"github.com/heedhttp/heed/quota"
)

// maxUnsynced is the number of keys to remember.
const maxUnsynced = 65_536

// unsynced is what was taken of each key while the Store failed, and what the Store does
// not know. The zero unsynced is empty.
type unsynced struct {
	mu   sync.Mutex // guards all below, and the units of each usage
	keys map[string]*usage
}

type usage struct {
	units   int64
	syncing chan struct{} // full while a call charges the Store
}

// add adds n units to the usage of key; n may be negative. With too many keys it forgets
// another one.
func (u *unsynced) add(key string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := u.keys[key]
	if k == nil {
		if n <= 0 {
			return
		}
		k = u.newLocked(key)
	}
	if k.units += min(n, math.MaxInt64-max(k.units, 0)); k.units <= 0 {
		delete(u.keys, key)
	}
}

func (u *unsynced) newLocked(key string) *usage {
	if u.keys == nil {
		u.keys = make(map[string]*usage)
	}
	if len(u.keys) >= maxUnsynced {
		for other := range u.keys {
			delete(u.keys, other)
			break
		}
	}
	k := &usage{syncing: make(chan struct{}, 1)}
	u.keys[key] = k
	return k
}

// sync calls charge with the usage of key, if there is any, and forgets it if charge
// succeeds. Other calls for the key wait meanwhile, so that none takes units before the
// Store knows what is left.
func (u *unsynced) sync(ctx context.Context, key string, charge func(n int64) error) error {
	u.mu.Lock()
	k := u.keys[key]
	u.mu.Unlock()
	if k == nil {
		return nil
	}
	select {
	case k.syncing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.syncing }()
	u.mu.Lock()
	n := k.units
	u.mu.Unlock()
	if n <= 0 {
		return nil // another call did it
	}
	err := charge(n)
	if err == nil {
		u.add(key, -n)
	}
	return err
}

// sync charges the Store with n units that key took without it. If an earlier charge was
// made but not answered in time, that is too much rather than too little. Units that have
// come back since are not charged; the share knows how many still count.
func (s *Shared) sync(ctx context.Context, key string, n int64) error {
	left, err := s.memory.Peek(ctx, nil, s.local.charges(key, 0, noTime)...)
	if err != nil {
		return err
	}
	charges := s.remote.charges(key, 0, noTime)
	for i, l := range s.local.limits {
		charges[i].N = min(n, counted(l, left[i], s.remote.limits[i]))
	}
	return asOwed(s.remote.store.Settle(ctx, charges...))
}

// counted returns how many units share still counts, rounded up. A full window or log may
// have reservations ahead, so its count is unknown: then the result is the Quota of
// whole, which one window never exceeds.
func counted(share *quota.Limit, d quota.Decision, whole *quota.Limit) int64 {
	p := share.Policy()
	switch {
	case isBucket(share):
		hi, lo := bits.Mul64(uint64(d.ResetAfter), uint64(p.Quota))
		if hi >= uint64(p.Window) {
			return math.MaxInt64
		}
		units, rest := bits.Div64(hi, lo, uint64(p.Window))
		if rest > 0 {
			units++
		}
		return int64(min(units, math.MaxInt64))
	case d.Remaining > 0:
		return p.Quota - d.Remaining
	default:
		return whole.Policy().Quota
	}
}
