package redisstore

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// accounts keeps a Budget's accounts. One that was used lately is found without
// a lock. One that is forgotten still sends what it has to send.
type accounts struct {
	recent [64]atomic.Pointer[account]

	mu      sync.Mutex // guards what follows
	all     map[string]*account
	sweepAt int // how many there are when idle ones are looked for again
}

const (
	firstSweep  = 1 << 8
	maxAccounts = 1 << 16
)

var accountSeed = maphash.MakeSeed()

func (as *accounts) get(b *Budget, key string) *account {
	slot := &as.recent[maphash.String(accountSeed, key)%uint64(len(as.recent))]
	if a := slot.Load(); a != nil && a.key == key {
		return a
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	a := as.all[key]
	if a == nil {
		a = as.addLocked(b, key)
	}
	slot.Store(a)
	return a
}

func (as *accounts) addLocked(b *Budget, key string) *account {
	if len(as.all) >= max(firstSweep, as.sweepAt) {
		as.sweepLocked()
	}
	if as.all == nil {
		as.all = make(map[string]*account)
	}
	a := newAccount(b, key)
	as.all[key] = a
	return a
}

// sweepLocked forgets idle accounts, or all if there are too many, and looks
// again when there are twice as many.
func (as *accounts) sweepLocked() {
	now := now()
	for key, a := range as.all {
		if a.idle(now) {
			delete(as.all, key)
		}
	}
	if len(as.all) > maxAccounts/2 {
		clear(as.all)
	}
	as.sweepAt = 2 * len(as.all)
}
