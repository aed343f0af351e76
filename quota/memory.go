package quota

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxKeys = 65_536

	// maxShards is the highest number of shards: the bits of call.locked. Each has
	// keysPerShard of MaxKeys or more.
	maxShards    = 64
	keysPerShard = 512
)

// A Memory is a Store in this process's memory. The zero value is ready to use:
//
//	var store quota.Memory
//	decisions, err := store.Take(ctx, nil, quota.Charge{Key: "alice", Limit: limit})
//
// It is safe for concurrent use and must not be copied. It is also a Peeker, a Reserver,
// an Inspector and a Gate. Its methods do not block, so they ignore their context. The
// only errors they return are a *ChargeError, a *DebtError and an *AcquireError.
type Memory struct {
	// MaxKeys is the number of buckets to keep: one for each Key and Limit that owes
	// anything, and one for each ID. If zero or negative, 65,536. Do not change it after
	// the first call.
	MaxKeys int

	now func() time.Time // if nil, the monotonic clock

	once   sync.Once // guards all below, up to shards
	start  time.Time
	epoch  int64           // start, in µs since the Unix epoch
	seeds  [2]maphash.Seed // of the two hashes of a keyHash
	shards []shard         // a power of two

	kept      atomic.Int64 // buckets and IDs
	forgotten atomic.Int64
	dropped   atomic.Int64
}

var (
	_ Peeker    = (*Memory)(nil)
	_ Reserver  = (*Memory)(nil)
	_ Inspector = (*Memory)(nil)
)

// Forgotten returns how many buckets were forgotten while they still owed something. If
// it grows, raise MaxKeys.
func (m *Memory) Forgotten() int64 { return m.forgotten.Load() }

// Take implements Store.
func (m *Memory) Take(_ context.Context, dst []Decision, charges ...Charge) ([]Decision, error) {
	return m.decide(dst, charges, true)
}

// Peek implements Peeker.
func (m *Memory) Peek(_ context.Context, dst []Decision, charges ...Charge) ([]Decision, error) {
	return m.decide(dst, charges, false)
}

func (m *Memory) decide(dst []Decision, charges []Charge, taking bool) ([]Decision, error) {
	if err := CheckTake(charges); err != nil {
		return dst, err
	}
	var few [4]step
	c := call{charges: charges, steps: stepsFor(charges, few[:])}
	c.lock(m)
	defer c.unlock()
	taken := c.try(false, 0) && taking
	dst = c.decisions(dst, taken)
	if taken {
		c.write()
	}
	return dst, nil
}

// Reserve implements Reserver.
func (m *Memory) Reserve(_ context.Context, max time.Duration, charges ...Charge) (
	wait time.Duration, at time.Time, ok bool, err error,
) {
	if err := CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	var few [4]step
	c := call{charges: charges, steps: stepsFor(charges, few[:])}
	c.lock(m)
	defer c.unlock()
	ok = c.try(true, max)
	wait, at = c.wait(), time.UnixMicro(c.now)
	if ok {
		c.write()
		at = at.Add(wait)
	}
	return wait, at, ok, nil
}

// Settle implements Settler.
func (m *Memory) Settle(_ context.Context, charges ...Charge) error {
	if err := CheckSettle(charges); err != nil {
		return err
	}
	var few [4]step
	c := call{charges: charges, steps: stepsFor(charges, few[:])}
	c.lock(m)
	defer c.unlock()
	cut := c.settle()
	c.write()
	if cut != nil {
		return cut
	}
	return nil
}

// Inspect implements Inspector.
func (m *Memory) Inspect(_ context.Context, key string) (states []State, err error) {
	s, h := m.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		if e := &s.entries[i]; e.of(h) {
			c := s.counts[e.number()]
			states = append(states, State{c.limit.Name(), c.dryRun, c.limit.shape, e.bucket(c.limit)})
		}
	}
	for r, kept := range s.overflow {
		if r.key == h.stored() && kept.limit != nil {
			states = append(states, State{kept.limit.Name(), r.dryRun, kept.limit.shape, kept.Bucket})
		}
	}
	for r, more := range s.more {
		for _, kept := range more {
			if r.key == h.stored() {
				states = append(states, State{kept.limit.Name(), r.dryRun, kept.limit.shape, kept.Bucket})
			}
		}
	}
	SortStates(states)
	return states, nil
}

// Reset implements Inspector.
func (m *Memory) Reset(_ context.Context, key string) error {
	s, h := m.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.entries); {
		if s.entries[i].of(h) {
			s.forget(i) // another entry may move to i
		} else {
			i++
		}
	}
	for r := range s.overflow {
		if r.key == h.stored() {
			s.forgetOverflow(r)
		}
	}
	return nil
}

// open makes the shards, on the first call.
func (m *Memory) open() {
	m.start = time.Now()
	m.epoch = m.start.UnixMicro()
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	m.shards = make([]shard, min(maxShards, 1<<bits.Len(uint(m.maxKeys()/keysPerShard/2))))
	for i := range m.shards {
		s := &m.shards[i]
		s.memory, s.table, s.tidiedAt = m, newTable(0), m.micros()
		s.overflow, s.held = make(map[ref]kept), make(map[keyHash]int64)
		s.more = make(map[ref][]kept)
	}
}

func (m *Memory) maxKeys() int {
	if m.MaxKeys > 0 {
		return m.MaxKeys
	}
	return defaultMaxKeys
}

// micros returns the time in µs since the Unix epoch.
func (m *Memory) micros() int64 {
	if m.now != nil {
		return m.now().UnixMicro()
	}
	return m.epoch + int64(time.Since(m.start)/time.Microsecond)
}

// A keyHash identifies a Key by two hashes with secret seeds, so that no client can
// choose Keys that collide. place is never 0.
type keyHash struct{ place, check uint64 }

// stored returns h without the bits that an entry does not store.
func (h keyHash) stored() keyHash { return keyHash{h.place, h.check & (lowMask * maxShards)} }

func (m *Memory) hash(key string) keyHash {
	return keyHash{max(1, maphash.String(m.seeds[0], key)), maphash.String(m.seeds[1], key)}
}

// shard returns the shard of h.
func (m *Memory) shard(h keyHash) *shard { return &m.shards[h.check&uint64(len(m.shards)-1)] }

// shardOf returns the shard and the hash of a Key.
func (m *Memory) shardOf(key string) (*shard, keyHash) {
	m.once.Do(m.open)
	h := m.hash(key)
	return m.shard(h), h
}
