package quota

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// maxShards is how many locks a Memory has at most: as many as a shardSet
	// has bits.
	maxShards = 64

	// keysPerShard is what makes another lock worthwhile.
	keysPerShard = 512

	// linger is how long, in µs, what is owed no more is kept if there is room: its
	// key may be back soon, and finding it is cheaper than adding it.
	linger = 10_000_000
)

// shardsFor is a power of two.
func shardsFor(keys int) int {
	return min(maxShards, 1<<bits.Len(uint(keys/keysPerShard/2)))
}

// A shard is the part of a ledger that one lock guards. All that is counted for one
// Key is in the same one. Methods that end in Locked are for who has the lock.
type shard struct {
	ledger *ledger               // that it is a part of
	table  atomic.Pointer[table] // replaced by who has the lock

	mu       sync.Mutex
	accounts []account // guarded by mu
	free     []int     // guarded by mu; places in accounts
	hand     int       // guarded by mu; the slot that was looked at last by forgetLocked

	_ [48]byte // keeps the locks of two shards out of one cache line
}

// An account is what a slot keeps aside: a Bucket of any kind, or until when an ID
// is remembered.
type account struct {
	limit  *Limit // that was charged last; nil for an ID
	Bucket        // of an ID only Time, until when it is remembered
	owner  hash   // of an ID, its Key's
}

// whole returns when a owes nothing more.
func (a *account) whole() int64 {
	if a.limit == nil {
		return a.Time
	}
	return a.limit.whole(&a.Bucket)
}

// accountLocked returns the account of a slot.
func (s *shard) accountLocked(word uint64) *account { return &s.accounts[stateOf(word)] }

// openLocked returns the place of a new account.
func (s *shard) openLocked(a account) (place int64) {
	if n := len(s.free); n > 0 {
		place := s.free[n-1]
		s.free = s.free[:n-1]
		s.accounts[place] = a
		return int64(place)
	}
	s.accounts = append(s.accounts, a)
	return int64(len(s.accounts) - 1)
}

// closeLocked closes the account of a slot, if it has one.
func (s *shard) closeLocked(tag, word uint64) {
	if tag&scaleMask != aside {
		return
	}
	*s.accountLocked(word) = account{}
	if s.free = append(s.free, int(stateOf(word))); len(s.free) == len(s.accounts) {
		s.accounts, s.free = nil, nil
	}
}

// readLocked sets b, which is zero, to what a slot owes at now: of a bucket, by the
// numbers it was charged with, which if they are l's may be left to l.
func (s *shard) readLocked(b *Bucket, slot *slot, word uint64, l *Limit, now int64) {
	tag := slot.tag.Load()
	if tag&scaleMask != aside {
		scaleOf(tag).unpack(b, stateOf(word), s.table.Load().origin, now)
		return
	}
	a := s.accountLocked(word)
	*b = a.Bucket
	if a.limit != l && a.limit != nil && a.limit.algorithm.drains() {
		a.limit.drain(b, now)
	}
}

// keepLocked has a slot of h, which is held, keep a, and lets it go.
func (s *shard) keepLocked(slot *slot, h hash, a *account, now int64) {
	tag, word := slot.tag.Load(), slot.word.Load()
	number, state := s.packLocked(a, now)
	switch {
	case number == aside && slot.aside():
		*s.accountLocked(word) = *a
		return
	case number == aside:
		state = s.openLocked(*a)
	default:
		s.closeLocked(tag, word)
	}
	slot.let(h.tag(number), h.check(), state)
}

// packLocked returns a's state and its scale, or aside if it does not fit.
func (s *shard) packLocked(a *account, now int64) (number uint64, state int64) {
	if a.limit != nil {
		if state, ok := a.limit.pack(&a.Bucket, s.table.Load().origin, now); ok {
			return a.limit.packed.number, state
		}
	}
	return aside, 0
}

// addLocked adds a slot of h, which keeps a.
func (s *shard) addLocked(h hash, a *account, now int64) {
	if s.ledger.kept.Add(1) > s.ledger.most {
		s.makeRoomLocked(now)
	}
	if !s.table.Load().roomy() {
		s.renewLocked(now)
	}
	number, state := s.packLocked(a, now)
	if number == aside {
		state = s.openLocked(*a)
	}
	s.table.Load().add(h.tag(number), h.check(), state)
}

// removeLocked forgets the tenant at i, whose slot is held.
func (s *shard) removeLocked(i int) {
	t := s.table.Load()
	s.closeLocked(t.slots[i].tag.Load(), t.slots[i].word.Load())
	t.remove(i)
	s.ledger.kept.Add(-1)
}

// renewLocked replaces the table by one that fits, whose origin is now, without
// what has long been owed no more.
func (s *shard) renewLocked(now int64) {
	old, owing := s.table.Load(), 0
	g := s.gaugeLocked(now - linger)
	for i := range old.slots {
		old.slots[i].hold()
		if g.owes(i) {
			owing++
		}
	}
	t := newTable(owing, s.ledger.origin(now))
	for i := range old.slots {
		tag, word := old.slots[i].tag.Load(), old.slots[i].word.Load()
		switch {
		case !g.owes(i):
			s.closeLocked(tag, word)
		case tag&scaleMask == aside:
			t.add(tag, word&checkMask, stateOf(word))
		default:
			t.add(tag, word&checkMask, scaleOf(tag).moved(stateOf(word), t.origin-old.origin))
		}
	}
	s.table.Store(t)
	s.ledger.kept.Add(int64(t.taken - old.taken))
}

// A shardSet has a bit for each shard.
type shardSet uint64

func (g *ledger) lock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		g.shards[bits.TrailingZeros64(uint64(set))].mu.Lock()
	}
}

func (g *ledger) unlock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		g.shards[bits.TrailingZeros64(uint64(set))].mu.Unlock()
	}
}
