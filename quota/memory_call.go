package quota

import (
	"math/bits"
	"time"
)

// A call takes, peeks, reserves or settles. lock locks the shards of all Keys and then
// reads the clock, try or settle computes the outcome of each charge, write stores it,
// and unlock unlocks. So other calls see all of a call or nothing, and time never runs
// backwards from one charge to the next.
type call struct {
	memory  *Memory
	charges []Charge
	steps   []step // one for each charge
	locked  uint64 // a bit for each shard
	now     int64  // µs since the Unix epoch
	settles bool
}

// A step is one charge of a call.
type step struct {
	key      keyHash
	previous int           // the index of the previous charge of the same bucket, or -1
	bucket   Bucket        // first before the charge, with earlier ones of the call; then after it
	wait     time.Duration // until it fits
	delay    time.Duration // after it is admitted
	fits     bool          // within the allowed wait, or because it is repeated
	known    bool          // the Key has a count of this Name
	others   bool          // it may have others, of other Shapes
	repeated bool          // its ID was charged before
	changed  bool          // it changes the bucket, if the call is allowed
}

// stepsFor returns a step for each charge, in few if there is room.
func stepsFor(charges []Charge, few []step) []step {
	if len(charges) <= len(few) {
		return few[:len(charges)]
	}
	return make([]step, len(charges))
}

// lock starts a call. c.steps are zero.
func (c *call) lock(m *Memory) {
	m.once.Do(m.open)
	c.memory = m
	charges, steps := c.charges, c.steps
	for i := range charges {
		if i > 0 && charges[i].Key == charges[i-1].Key {
			steps[i].key = steps[i-1].key
		} else {
			steps[i].key = m.hash(charges[i].Key)
		}
		steps[i].previous = previous(charges, i)
		c.locked |= 1 << (steps[i].key.check & uint64(len(m.shards)-1))
	}
	for set := c.locked; set != 0; set &= set - 1 { // in order, to avoid deadlocks
		m.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
	c.now = m.micros()
	for set := c.locked; set != 0; set &= set - 1 {
		m.shards[bits.TrailingZeros64(set)].tidy(c.now)
	}
}

// previous returns the index of the last charge before i of the same bucket, or -1.
func previous(charges []Charge, i int) int {
	for j := i - 1; j >= 0; j-- {
		if charges[j].SameBucket(&charges[i]) {
			return j
		}
	}
	return -1
}

func (c *call) unlock() {
	for set := c.locked; set != 0; set &= set - 1 {
		c.memory.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// find sets b to the stored bucket of charges[i], in the units of its Limit. If there is none,
// it begins with what the one of another Shape says that owes most.
func (c *call) find(i int, b *Bucket) {
	s, charge := &c.steps[i], &c.charges[i]
	l, shard := charge.Limit, c.memory.shard(s.key)
	by := shard.first(s.key, l, charge.DryRun, b)
	s.known = by != nil
	if s.others = s.known && (by.count != l.count || len(shard.more) > 0); !s.others {
		l.drain(b, c.now)
		return
	}
	*b = l.Drain(Bucket{}, c.now)
	for by, other := range shard.all(s.key, l, charge.DryRun) {
		if by.isOver(&other, c.now) {
			continue
		}
		if by.count == l.count {
			*b = l.Drain(other, c.now)
			return
		}
		by.drain(&other, c.now)
		if by.whole(&other) <= c.now {
			continue
		}
		if l.drain(&other, c.now); other.moreThan(b) {
			*b = other
		}
	}
}

// prepare loads the bucket of charges[i], with earlier charges of the call.
func (c *call) prepare(i int) *step {
	s, charge := &c.steps[i], &c.charges[i]
	j := s.previous
	for j >= 0 && !c.steps[j].changed {
		j = c.steps[j].previous
	}
	if j >= 0 {
		s.bucket, s.known, s.others = c.steps[j].bucket, true, c.steps[j].others
		charge.Limit.drain(&s.bucket, c.now)
	} else {
		c.find(i, &s.bucket)
	}
	s.repeated = charge.ID != "" && c.charged(i)
	return s
}

// charged reports whether the ID of charges[i] was charged before, by this call or
// another.
func (c *call) charged(i int) bool {
	s, charge := &c.steps[i], &c.charges[i]
	for j := s.previous; j >= 0; j = c.steps[j].previous {
		if c.steps[j].fits && c.charges[j].ID == charge.ID {
			return true
		}
	}
	return c.memory.shard(s.key).overflow[c.id(i)].Time > c.now
}

// id returns where the ID of charges[i] is stored.
func (c *call) id(i int) ref {
	charge := &c.charges[i]
	return ref{c.steps[i].key.stored(), charge.Limit.name, charge.DryRun, c.memory.hash(charge.ID)}
}

// try computes the outcome of all charges: at once or, if reserved, within max. It
// reports whether all of them fit, except DryRun ones.
func (c *call) try(reserved bool, max time.Duration) (allowed bool) {
	allowed = true
	for i := range c.steps {
		s, charge := c.prepare(i), &c.charges[i]
		l, n := charge.Limit, charge.Units()
		switch {
		case s.repeated:
			s.fits = true
		case reserved:
			s.wait, s.fits = l.tryWithin(&s.bucket, n, c.now, max)
		default:
			s.wait, s.delay = l.wait(&s.bucket, n, c.now), l.delay(&s.bucket, c.now)
			s.fits = l.try(&s.bucket, n, c.now)
		}
		s.changed = s.fits && !s.repeated
		allowed = allowed && (s.fits || charge.DryRun)
	}
	return allowed
}

// settle computes the outcome of all charges. It returns an error if one is not charged in full.
func (c *call) settle() (cut *DebtError) {
	c.settles = true
	for i := range c.steps {
		s, charge := c.prepare(i), &c.charges[i]
		if s.repeated {
			continue
		}
		met := s.bucket
		s.bucket = charge.Limit.Settle(met, charge.N, chargedAt(charge), c.now)
		if n := charge.Limit.Cut(met, charge.N); n > 0 && cut == nil {
			cut = &DebtError{i, charge.Limit.Name(), charge.N, n}
		}
		s.fits = charge.N != 0
		s.changed = s.fits && (s.known || s.bucket != met)
	}
	return cut
}

// wait returns the longest wait of the charges that are not DryRun.
func (c *call) wait() (longest time.Duration) {
	for i := range c.steps {
		if !c.charges[i].DryRun {
			longest = max(longest, c.steps[i].wait)
		}
	}
	return longest
}

// decisions appends the Decisions. Nothing is written yet. A charge that is not taken is described
// by what is stored, without what other charges of the call would have taken.
func (c *call) decisions(dst []Decision, taken bool) []Decision {
	for i := range c.steps {
		s, charge := &c.steps[i], &c.charges[i]
		if !taken && (s.fits || s.previous >= 0) || !s.fits && s.previous >= 0 { // s.bucket has charges too many
			s.bucket = Bucket{}
			c.find(i, &s.bucket)
		}
		dst = append(dst, Decision{})
		d := &dst[len(dst)-1]
		d.Allowed, d.At = s.repeated, time.UnixMicro(c.now)
		charge.Limit.describe(d, &s.bucket, c.now)
		if !s.repeated {
			d.resolve(c.charges, i, s.wait, s.delay)
		}
	}
	return dst
}

// write stores the buckets, and remembers the IDs.
func (c *call) write() {
	for i := range c.steps {
		s, charge := &c.steps[i], &c.charges[i]
		if !s.fits || s.repeated {
			continue
		}
		shard := c.memory.shard(s.key)
		owed := s.others && c.owed(i)
		if s.others && !owed {
			shard.forgetAll(s.key, charge.Limit, charge.DryRun)
		}
		if s.changed {
			shard.store(s.key, charge.Limit, charge.DryRun, &s.bucket, c.now)
		}
		if owed {
			c.chargeOthers(i)
		}
		if charge.ID != "" {
			shard.remember(c.id(i), charge.Limit.Remembers(c.now), c.now)
		}
	}
}

// owed reports whether any count of the Name of charges[i] owed something before it.
func (c *call) owed(i int) bool {
	s, charge := &c.steps[i], &c.charges[i]
	for by, b := range c.memory.shard(s.key).all(s.key, charge.Limit, charge.DryRun) {
		if by.count == charge.Limit.count {
			by = charge.Limit
		}
		if by.drain(&b, c.now); by.whole(&b) > c.now {
			return true
		}
	}
	return false
}

// chargeOthers charges the counts of other Shapes, too.
func (c *call) chargeOthers(i int) {
	s, charge := &c.steps[i], &c.charges[i]
	l, n, at, shard := charge.Limit, charge.Units(), int64(0), c.memory.shard(s.key)
	if c.settles {
		n, at = charge.N, chargedAt(charge)
	}
	for by, b := range shard.all(s.key, l, charge.DryRun) {
		if by.count == l.count || by.isOver(&b, c.now) {
			continue
		}
		by.drain(&b, c.now)
		b = by.Follow(b, l, n, at, c.now)
		shard.store(s.key, by, charge.DryRun, &b, c.now)
	}
}

// chargedAt returns At in µs since the Unix epoch, or 0 if it is not set.
func chargedAt(c *Charge) int64 {
	if c.At.IsZero() {
		return 0
	}
	return c.At.UnixMicro()
}
