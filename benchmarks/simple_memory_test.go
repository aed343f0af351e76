package benchmarks_test

import (
	"hash/maphash"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
)

// A simpleMemory is a plain limiter: token buckets in flat tables without pointers, each
// behind a mutex. It counts as exactly as quota.Memory does, and lacks all the rest: it
// never forgets a key, does not notice a limit that changes, has no other algorithm, no
// calls of several charges, no refunds, and takes two keys of one hash for the same.
// What quota.Memory costs more than this is the price of that.
type simpleMemory struct {
	seed   maphash.Seed
	start  time.Time
	shards [64]simpleShard
}

type simpleShard struct {
	mu    sync.Mutex
	slots []simpleSlot // a power of two of them, of which a quarter is always free
	used  int
	_     [24]byte // to the end of the cache line
}

// A simpleSlot holds what a key owes; it is free if hash is 0.
type simpleSlot struct {
	hash  uint64
	time  int64 // in µs since the start
	level int64 // owed at that time, in parts
}

// A simpleLimit is a quota.Limit's numbers: a unit is so many parts, of which rate drain
// per µs.
type simpleLimit struct{ unit, rate, capacity int64 }

// take takes a unit of key if there is one.
func (m *simpleMemory) take(key string, l *simpleLimit) (remaining int64, retryAfter time.Duration, ok bool) {
	hash := maphash.String(m.seed, key) | 1
	s := &m.shards[hash>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	now, at := time.Since(m.start).Microseconds(), s.find(hash)
	level := max(0, at.level-(now-at.time)*l.rate)
	if missing := level + l.unit - l.capacity; missing > 0 {
		return 0, time.Duration((missing+l.rate-1)/l.rate) * time.Microsecond, false
	}
	level += l.unit
	at.time, at.level = now, level
	return (l.capacity - level) / l.unit, 0, true
}

// find returns the slot of hash, a free one if it has none yet.
func (s *simpleShard) find(hash uint64) *simpleSlot {
	if 4*s.used >= 3*len(s.slots) {
		s.grow()
	}
	mask := uint64(len(s.slots) - 1)
	for i := hash >> 1; ; i++ {
		slot := &s.slots[i&mask]
		if slot.hash == hash {
			return slot
		}
		if slot.hash == 0 {
			slot.hash = hash
			s.used++
			return slot
		}
	}
}

func (s *simpleShard) grow() {
	before := s.slots
	s.slots, s.used = make([]simpleSlot, max(8, 2*len(before))), 0
	for _, slot := range before {
		if slot.hash != 0 {
			*s.find(slot.hash) = slot
		}
	}
}

func openSimple(tb testing.TB, _, limit int) decide {
	l := compile(tb, quota.PerDay(int64(limit)))
	require.Equal(tb, time.Microsecond, l.Tick())
	m := &simpleMemory{seed: maphash.MakeSeed(), start: time.Now()}
	numbers := &simpleLimit{l.Unit(), l.Rate(), l.Capacity()}
	return func(key string) (bool, error) {
		_, _, ok := m.take(key, numbers)
		return ok, nil
	}
}
