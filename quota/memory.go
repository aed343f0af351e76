package quota

import (
	"cmp"
	"context"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxKeys = 65_536

	// maxShards is how many shards a Memory has at most: as many as call.locked has
	// bits. Each has keysPerShard of MaxKeys or more.
	maxShards    = 64
	keysPerShard = 512
)

// A Memory is a Store of this process. Its zero value is ready to use; it is
// safe for concurrent use and must not be copied. It is a Peeker, a Reserver and
// an Inspector too. Its methods never block, so they ignore their context, and
// they return no error but a *ChargeError.
type Memory struct {
	// MaxKeys is how many buckets are kept: one for each Key and Limit that
	// owes anything, and one for each ID that is remembered. If zero or negative,
	// 65,536. It must not be changed after the first call.
	MaxKeys int

	now func() time.Time // if nil, the monotonic clock

	once   sync.Once // guards what follows, up to shards
	start  time.Time
	epoch  int64           // start, in µs since the Unix epoch
	seeds  [2]maphash.Seed // of the halves of a keyHash
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

// Forgotten returns how many buckets were forgotten before they were whole.
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
	c.begin(m)
	defer c.end()
	taken := c.try(false, 0) && taking
	dst = c.judge(dst, taken)
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
	c.begin(m)
	defer c.end()
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
	c.begin(m)
	defer c.end()
	c.settle()
	c.write()
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
			states = append(states, State{Name: c.limit.Name(), DryRun: c.dryRun, Bucket: e.bucket(c.limit)})
		}
	}
	for r, kept := range s.rest {
		if r.key == h && r.id == (keyHash{}) {
			states = append(states, State{Name: r.name.Value(), DryRun: r.dryRun, Bucket: kept.Bucket})
		}
	}
	slices.SortFunc(states, func(a, b State) int {
		if order := cmp.Compare(a.Name, b.Name); order != 0 || a.DryRun == b.DryRun {
			return order
		}
		if b.DryRun {
			return -1
		}
		return 1
	})
	return states, nil
}

// Reset implements Inspector.
func (m *Memory) Reset(_ context.Context, key string) error {
	s, h := m.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.entries); {
		if s.entries[i].of(h) {
			s.forget(i) // which may move another entry to i
		} else {
			i++
		}
	}
	for r := range s.rest {
		if r.key == h {
			s.forgetRest(r)
		}
	}
	return nil
}

// open makes the shards, at the first call.
func (m *Memory) open() {
	m.start = time.Now()
	m.epoch = m.start.UnixMicro()
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	m.shards = make([]shard, min(maxShards, 1<<bits.Len(uint(m.maxKeys()/keysPerShard/2))))
	for i := range m.shards {
		s := &m.shards[i]
		s.memory, s.table, s.tidied = m, newTable(0), m.micros()
		s.rest, s.held = make(map[ref]kept), make(map[keyHash]int64)
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

// A keyHash stands for a Key: two hashes with secret seeds, so nobody outside can
// choose Keys that have the same. The first one is never 0.
type keyHash struct{ place, check uint64 }

func (m *Memory) hash(key string) keyHash {
	return keyHash{max(1, maphash.String(m.seeds[0], key)), maphash.String(m.seeds[1], key)}
}

// shard returns the shard of h, which its low bits choose.
func (m *Memory) shard(h keyHash) *shard { return &m.shards[h.check&uint64(len(m.shards)-1)] }

// shardOf returns the shard of a Key.
func (m *Memory) shardOf(key string) (*shard, keyHash) {
	m.once.Do(m.open)
	h := m.hash(key)
	return m.shard(h), h
}
