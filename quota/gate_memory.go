package quota

import (
	"context"
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

var _ Gate = (*Memory)(nil)

// Acquire implements Gate. Places are counted apart from buckets: they are not
// among MaxKeys, they are never forgotten, and a key of which none is in use
// takes no memory. A Hold that is dropped is noticed by the garbage collector.
func (m *Memory) Acquire(_ context.Context, key string, limit, n int64) (*Hold, Decision, error) {
	if err := CheckAcquire(limit, n); err != nil {
		return nil, Decision{}, err
	}
	n = max(n, 1)
	at, _ := m.moment()
	d := Decision{Limit: limit, Never: n > limit, At: at}
	part := m.inFlight.partOf(key)
	place, used := part.take(key, limit, n)
	d.Remaining = max(0, limit-used)
	if place == nil {
		return nil, d, nil
	}
	d.Allowed = true
	release := func() { part.giveBack(place, n) }
	dropped := func() { m.inFlight.dropped.Add(1); part.giveBack(place, n) }
	return NewHold(release, dropped, nil), d, nil
}

// Dropped returns how many Holds became garbage without having been released.
// There should be none.
func (m *Memory) Dropped() int64 { return m.inFlight.dropped.Load() }

// inFlight is what is in use of all keys.
type inFlight struct {
	parts   [16]inFlightPart
	dropped atomic.Int64
}

var inFlightSeed = maphash.MakeSeed()

func (f *inFlight) partOf(key string) *inFlightPart {
	return &f.parts[maphash.String(inFlightSeed, key)%uint64(len(f.parts))]
}

// An inFlightPart is the part that one lock guards.
type inFlightPart struct {
	mu   sync.Mutex
	keys map[string]*places // guarded by mu; those of which any place is in use
	peak int                // guarded by mu; how many keys the map had room for

	_ [64]byte // keeps two locks out of one cache line
}

// places are those in use of one key.
type places struct {
	key  string
	used int64 // guarded by the part's mu
}

// take takes n places within limit, and returns how many are in use then. If they
// do not fit, it returns no places.
func (p *inFlightPart) take(key string, limit, n int64) (*places, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.keys[key]
	used := int64(0)
	if of != nil {
		used = of.used
	}
	if n > limit-used {
		return nil, used
	}
	if of == nil {
		of = p.addLocked(key)
	}
	of.used += n
	return of, of.used
}

func (p *inFlightPart) giveBack(of *places, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of.used -= n; of.used == 0 {
		p.forgetLocked(of)
	}
}

func (p *inFlightPart) addLocked(key string) *places {
	if p.keys == nil {
		p.keys = make(map[string]*places)
	}
	of := &places{key: strings.Clone(key)} // which may be a piece of a whole request
	p.keys[of.key] = of
	p.peak = max(p.peak, len(p.keys))
	return of
}

// forgetLocked forgets a key. A map keeps the room that it once had, so after a
// flood of keys it is replaced.
func (p *inFlightPart) forgetLocked(of *places) {
	delete(p.keys, of.key)
	if p.peak < 64 || len(p.keys) > p.peak/8 {
		return
	}
	p.peak = len(p.keys)
	kept := make(map[string]*places, p.peak)
	maps.Copy(kept, p.keys)
	p.keys = kept
}
