package quota

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"unique"
)

const (
	// maxShards is how many locks a Memory has at most: as many as a shardSet
	// has bits.
	maxShards = 64

	// keysPerShard is what makes another lock worthwhile.
	keysPerShard = 512

	// linger is how long, in µs, a bucket is kept after it is whole if there is
	// room: its key may be back soon, and finding it is cheaper than adding it.
	linger = 10_000_000
)

// shardsFor is a power of two.
func shardsFor(keys int) int {
	return min(maxShards, 1<<bits.Len(uint(keys/keysPerShard/2)))
}

// A shard is the part of a Memory that one lock guards. All buckets of a Key are
// in the same one.
type shard struct {
	mu      sync.Mutex
	buckets map[bucketID]*entry // guarded by mu
	line    []*entry            // guarded by mu; the same ones, a binary heap by due

	_ [64]byte // keeps the locks of two shards out of one cache line
}

// A bucketID is what makes two charges be counted together.
type bucketID struct {
	key    string
	limit  unique.Handle[string]
	dryRun bool
}

func (c *Charge) id() bucketID { return bucketID{c.Key, c.Limit.name, c.DryRun} }

// An entry is a bucket that is kept.
type entry struct {
	Bucket
	id    bucketID
	whole int64 // when it owes nothing more, in µs since the Unix epoch
	due   int64 // its order in the line: whole, or what that once was if it is later now
	place int   // in the line
}

// gone is the place of an entry that is no longer kept.
const gone = -1

// shardOf returns where the buckets of key are.
func (m *Memory) shardOf(key string) int {
	if len(m.shards) == 1 {
		return 0
	}
	return int(maphash.String(m.seed, key)) & (len(m.shards) - 1)
}

// A shardSet has a bit for each shard.
type shardSet uint64

// lock has visits begin at the shards of charges, and locks these: each once and
// in one order, so that two calls cannot wait for each other.
func (m *Memory) lock(visits []visit, charges []Charge) (held shardSet) {
	for i := range charges {
		n := m.shardOf(charges[i].Key)
		held |= 1 << n
		visits[i].shard = &m.shards[n]
	}
	for rest := held; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return held
}

func (m *Memory) unlock(held shardSet) {
	for ; held != 0; held &= held - 1 {
		m.shards[bits.TrailingZeros64(uint64(held))].mu.Unlock()
	}
}

// addLocked keeps a new entry for c, and makes room for it.
func (m *Memory) addLocked(s *shard, c *Charge, now, whole int64) *entry {
	m.tidyLocked(s, now)
	id := c.id()
	id.key = strings.Clone(id.key) // which may be a piece of a whole request
	e := &entry{id: id, whole: whole, due: whole, place: len(s.line)}
	s.buckets[id] = e
	s.line = append(s.line, e)
	s.upLocked(e)
	m.kept.Add(1)
	return e
}

// tidyLocked forgets up to two entries that have long been whole, so that there
// are fewer of them after each call that adds one. If the Memory is full it
// forgets at least one, whole or not.
func (m *Memory) tidyLocked(s *shard, now int64) {
	full := m.kept.Load() >= int64(m.maxKeys())
	for range 2 {
		if len(s.line) == 0 {
			return
		}
		first := s.soonestLocked()
		if !full && first.whole > now-linger {
			return
		}
		if first.whole > now {
			m.forgotten.Add(1)
		}
		m.forgetLocked(s)
		full = false
	}
}

// forgetLocked removes the first in line.
func (m *Memory) forgetLocked(s *shard) {
	first, last := s.line[0], s.line[len(s.line)-1]
	s.line[len(s.line)-1] = nil
	s.line = s.line[:len(s.line)-1]
	if first != last {
		s.setLocked(last, 0)
		s.downLocked(last)
	}
	first.place = gone
	delete(s.buckets, first.id)
	m.kept.Add(-1)
}

// soonestLocked brings to the front the entry that is whole soonest, and returns
// it. Entries that were charged since they took their place are moved only here,
// which is why charging costs nothing.
func (s *shard) soonestLocked() *entry {
	for {
		first := s.line[0]
		if first.due == first.whole {
			return first
		}
		first.due = first.whole
		s.downLocked(first)
	}
}

// moveLocked notes that e is whole at another time.
func (s *shard) moveLocked(e *entry, whole int64) {
	e.whole = whole
	if whole < e.due {
		e.due = whole
		s.upLocked(e)
	}
}

func (s *shard) upLocked(e *entry) {
	for e.place > 0 {
		parent := s.line[(e.place-1)/2]
		if parent.due <= e.due {
			return
		}
		s.swapLocked(e, parent)
	}
}

func (s *shard) downLocked(e *entry) {
	for {
		child := 2*e.place + 1
		if child >= len(s.line) {
			return
		}
		if child+1 < len(s.line) && s.line[child+1].due < s.line[child].due {
			child++
		}
		if e.due <= s.line[child].due {
			return
		}
		s.swapLocked(e, s.line[child])
	}
}

func (s *shard) swapLocked(e, f *entry) {
	p := e.place
	s.setLocked(e, f.place)
	s.setLocked(f, p)
}

func (s *shard) setLocked(e *entry, place int) {
	s.line[place], e.place = e, place
}
