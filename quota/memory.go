package quota

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const defaultMaxKeys = 65_536

// A Memory is a Store of this process. Its zero value is ready to use; it is
// safe for concurrent use and must not be copied. It is a Peeker and a Reserver
// too. Its methods never block, so they ignore their context, and they return
// no error but a *ChargeError.
//
// It has no goroutine and bounded memory. What it forgets, in passing, are
// buckets that are whole again, which are the same as absent ones. When it is
// full of others, as under a flood of new keys, the one that would be whole
// soonest is forgotten before its time; Forgotten counts these.
type Memory struct {
	// MaxKeys is how many buckets are kept: one for each Key and Limit that
	// owes anything. If zero or negative, 65,536. It must not be changed after
	// the first call.
	MaxKeys int

	now func() time.Time // if nil, time.Now

	once   sync.Once // guards the making of start, epoch, seed and shards
	start  time.Time
	epoch  int64 // start, in µs since the Unix epoch
	seed   maphash.Seed
	shards []shard

	kept      atomic.Int64 // buckets in all shards
	forgotten atomic.Int64
	inFlight  inFlight
}

func (m *Memory) init() {
	m.start = m.clock()
	m.epoch = m.start.UnixMicro()
	m.seed = maphash.MakeSeed()
	m.shards = make([]shard, shardsFor(m.maxKeys()))
	for i := range m.shards {
		m.shards[i].buckets = make(map[bucketID]*entry)
	}
}

func (m *Memory) maxKeys() int {
	if m.MaxKeys > 0 {
		return m.MaxKeys
	}
	return defaultMaxKeys
}

func (m *Memory) clock() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

// moment reads the clock once: at for people, now in µs since the Unix epoch
// for arithmetic, by the monotonic clock.
func (m *Memory) moment() (at time.Time, now int64) {
	m.once.Do(m.init)
	at = m.clock()
	return at, m.micros(at)
}

// micros is at in µs since the Unix epoch, by the monotonic clock if at has it.
func (m *Memory) micros(at time.Time) int64 { return m.epoch + at.Sub(m.start).Microseconds() }

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
	at, now := m.moment()
	var few [4]visit
	visits := room(few[:], len(charges))
	held := m.lock(visits, charges)
	defer m.unlock(held)

	allowed := tryLocked(visits, charges, now, false, 0)
	for i := range visits {
		v := &visits[i]
		take := taking && allowed && v.fits
		left := &v.found
		if take {
			left = &v.after
		}
		dst = append(dst, Decision{At: at})
		d := &dst[len(dst)-1]
		d.judge(charges, i, &v.met, left, now)
		if take {
			m.keepLocked(v, &charges[i], now, now+d.ResetAfter.Microseconds())
		}
	}
	return dst, nil
}

// Reserve implements Reserver.
func (m *Memory) Reserve(_ context.Context, max time.Duration, charges ...Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	if err := CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	at, now := m.moment()
	var few [4]visit
	visits := room(few[:], len(charges))
	held := m.lock(visits, charges)
	defer m.unlock(held)

	ok = tryLocked(visits, charges, now, true, max)
	for i := range visits {
		v, c := &visits[i], &charges[i]
		if !c.DryRun && v.wait > wait {
			wait = v.wait
		}
		if ok && v.fits {
			m.keepLocked(v, c, now, c.Limit.whole(&v.after))
		}
	}
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
	_, now := m.moment()
	var few [4]visit
	visits := room(few[:], len(charges))
	held := m.lock(visits, charges)
	defer m.unlock(held)

	for i := range visits {
		v, c := &visits[i], &charges[i]
		v.findLocked(c, now)
		v.after = c.Limit.Settle(v.met, c.N, m.chargedAt(c), now)
		if v.after != v.met {
			m.keepLocked(v, c, now, c.Limit.whole(&v.after))
		}
	}
	return nil
}

// chargedAt is c.At for Limit.Settle.
func (m *Memory) chargedAt(c *Charge) int64 {
	if c.At.IsZero() {
		return 0
	}
	return m.micros(c.At)
}

// A visit is what a charge finds, and what it leaves if it is made.
type visit struct {
	shard *shard
	entry *entry        // where its bucket is kept; nil if nowhere yet
	found Bucket        // as the call found it
	met   Bucket        // with what the charges before took
	after Bucket        // with what this one takes
	wait  time.Duration // until it fits
	fits  bool          // within the wait allowed
}

// room returns n visits, in few if they fit.
func room(few []visit, n int) []visit {
	if n <= len(few) {
		return few[:n]
	}
	return make([]visit, n)
}

// tryLocked makes the visits, and reports whether all charges but the DryRun
// ones fit: now, or where they are reserved, within max. Nothing is changed.
func tryLocked(visits []visit, charges []Charge, now int64, reserved bool, max time.Duration) (allowed bool) {
	allowed = true
	for i := range visits {
		v, c := &visits[i], &charges[i]
		if same := earlier(charges, i); same >= 0 {
			v.found, v.met = visits[same].found, visits[same].after
			c.Limit.drain(&v.found, now)
			c.Limit.drain(&v.met, now)
		} else {
			v.findLocked(c, now)
		}
		v.after = v.met
		if reserved {
			v.wait, v.fits = c.Limit.tryWithin(&v.after, c.Units(), now, max)
		} else {
			v.fits = c.Limit.try(&v.after, c.Units(), now)
		}
		allowed = allowed && (v.fits || c.DryRun)
	}
	return allowed
}

// earlier returns the last charge before i that is counted with it, or -1.
func earlier(charges []Charge, i int) int {
	for j := i - 1; j >= 0; j-- {
		if charges[j].SameBucket(&charges[i]) {
			return j
		}
	}
	return -1
}

// findLocked looks c's bucket up.
func (v *visit) findLocked(c *Charge, now int64) {
	if v.entry = v.shard.buckets[c.id()]; v.entry != nil {
		v.found = v.entry.Bucket
	}
	c.Limit.drain(&v.found, now)
	v.met = v.found
}

// keepLocked stores what v leaves, and when that will be whole.
func (m *Memory) keepLocked(v *visit, c *Charge, now, whole int64) {
	if v.entry == nil || v.entry.place == gone {
		if v.entry = v.shard.buckets[c.id()]; v.entry == nil {
			v.entry = m.addLocked(v.shard, c, now, whole)
		}
	}
	v.entry.Bucket = v.after
	v.shard.moveLocked(v.entry, whole)
}
