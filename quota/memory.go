package quota

import (
	"context"
	"sync/atomic"
	"time"
)

const defaultMaxKeys = 65_536

// A Memory is a Store of this process. Its zero value is ready to use; it is
// safe for concurrent use and must not be copied. It is a Peeker, a Reserver and
// an Inspector too. Its methods never block, so they ignore their context, and
// they return no error but a *ChargeError.
type Memory struct {
	// MaxKeys is how many buckets are kept: one for each Key and Limit that
	// owes anything. If zero or negative, 65,536. It must not be changed after
	// the first call.
	MaxKeys int

	now func() time.Time // if nil, the monotonic clock

	books    atomic.Pointer[ledger] // made at the first use
	inFlight inFlight
}

var (
	_ Peeker    = (*Memory)(nil)
	_ Reserver  = (*Memory)(nil)
	_ Inspector = (*Memory)(nil)
)

func (m *Memory) maxKeys() int {
	if m.MaxKeys > 0 {
		return m.MaxKeys
	}
	return defaultMaxKeys
}

// moment reads the clock once: at for people, now in µs since the Unix epoch
// for arithmetic, by the monotonic clock.
func (m *Memory) moment() (at time.Time, now int64) {
	now = m.ledger().now()
	return time.UnixMicro(now), now
}

// Forgotten returns how many buckets were forgotten before they were whole.
func (m *Memory) Forgotten() int64 {
	if g := m.books.Load(); g != nil {
		return g.forgotten.Load()
	}
	return 0
}

// Take implements Store.
func (m *Memory) Take(_ context.Context, dst []Decision, charges ...Charge) ([]Decision, error) {
	switch len(charges) {
	case 0:
	case 1:
		if dst, ok := m.quick(dst, &charges[0]); ok {
			return dst, nil
		}
	default:
		if dst, ok := m.several(dst, charges); ok {
			return dst, nil
		}
	}
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
	var few [4]visit
	g := m.ledger()
	c := g.begin(charges, room(few[:], len(charges)))
	taken := c.try(false, 0) && taking
	dst = c.judge(dst, taken)
	c.end(taken)
	g.unlock(c.locked)
	return dst, nil
}

// Reserve implements Reserver.
func (m *Memory) Reserve(_ context.Context, max time.Duration, charges ...Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	if err := CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	var few [4]visit
	g := m.ledger()
	c := g.begin(charges, room(few[:], len(charges)))
	ok = c.try(true, max)
	wait = c.wait()
	c.end(ok)
	g.unlock(c.locked)
	at = time.UnixMicro(c.now)
	if ok {
		at = at.Add(wait)
	}
	return wait, at, ok, nil
}

// Settle implements Settler.
func (m *Memory) Settle(_ context.Context, charges ...Charge) error {
	if err := CheckSettle(charges); err != nil {
		return err
	}
	var few [4]visit
	g := m.ledger()
	c := g.begin(charges, room(few[:], len(charges)))
	c.settle()
	c.end(true)
	g.unlock(c.locked)
	return nil
}

// Inspect implements Inspector. It asks for the Names of all Limits that are in use
// in this process: what was counted by others is not among the States.
func (m *Memory) Inspect(_ context.Context, key string) (states []State, err error) {
	names, h, g := registered(), keyHash(key), m.ledger()
	s := g.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := g.now()
	if s.agedLocked(now) {
		s.renewLocked(now)
	}
	for _, name := range names {
		for _, dryRun := range []bool{false, true} {
			if b, ok := s.stateLocked(h.counted(name, dryRun), now); ok {
				states = append(states, State{Name: name, DryRun: dryRun, Bucket: b})
			}
		}
	}
	return states, nil
}

// Reset implements Inspector, of the same Names.
func (m *Memory) Reset(_ context.Context, key string) error {
	names, h := registered(), keyHash(key)
	s := m.ledger().shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.dropLocked(h.counted(name, false))
		s.dropLocked(h.counted(name, true))
	}
	s.disownLocked(h)
	return nil
}
