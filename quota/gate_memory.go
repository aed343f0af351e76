package quota

import (
	"context"
	"time"
)

var _ Gate = (*Memory)(nil)

// Acquire implements Gate. Places are separate from buckets: they do not count toward
// MaxKeys and are never forgotten, and a key without places in use soon takes no memory.
// The garbage collector finds Holds that were dropped.
func (m *Memory) Acquire(_ context.Context, key string, limit, n int64) (*Hold, Decision, error) {
	if err := CheckAcquire(limit, n); err != nil {
		return nil, Decision{}, err
	}
	n = max(n, 1)
	s, h := m.shardOf(key)
	used, ok := s.acquire(h, limit, n)
	d := Decision{Allowed: ok, Never: n > limit, Limit: limit, Remaining: max(0, limit-used)}
	d.At = time.UnixMicro(m.micros())
	if !ok {
		return nil, d, nil
	}
	release := func() { s.release(h, n) }
	dropped := func() { m.dropped.Add(1); s.release(h, n) }
	return NewHold(release, dropped, nil), d, nil
}

// Dropped returns how many Holds became garbage without a Release. It should be 0.
func (m *Memory) Dropped() int64 { return m.dropped.Load() }

// acquire takes n places if they are free, and returns how many are in use then.
func (s *shard) acquire(h keyHash, limit, n int64) (used int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used = s.held[h]; n > limit-used {
		return used, false
	}
	s.held[h] = used + n
	s.heldMax = max(s.heldMax, len(s.held))
	return used + n, true
}

func (s *shard) release(h keyHash, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[h] > n {
		s.held[h] -= n
		return
	}
	delete(s.held, h)
	if len(s.held) == 0 && s.heldMax > minEntries {
		s.held, s.heldMax = make(map[keyHash]int64), 0 // an emptied map keeps its memory
	}
}
