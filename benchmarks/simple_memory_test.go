package benchmarks_test

import (
	"hash/maphash"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
)

// A simpleMemory is a plain limiter: token buckets in flat tables without pointers, each with a
// mutex. It counts as exactly as quota.Memory and lacks all else: it evicts no keys, does not
// notice changed limits, mixes up keys with the same hash, and has no other algorithm, no
// decisions about several limits and no refunds. The difference in cost is the price of these.
type simpleMemory struct {
	seed   maphash.Seed
	start  time.Time
	shards [64]simpleShard
}

type simpleShard struct {
	mu    sync.Mutex
	slots []simpleSlot // a power of two; a quarter of them is always free
	used  int
	_     [24]byte // to the end of the cache line
}

// A simpleSlot holds the level of a key. It is free if hash is 0.
type simpleSlot struct {
	hash  uint64
	time  int64 // in µs since the start
	level int64 // at that time, in parts
}

// A simpleLimit has the numbers of a quota.Limit. A unit has many parts; rate parts drain each µs.
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

// find returns the slot of hash, or a free one.
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
