package quota

import "time"

// A visit is what one charge of a call finds and leaves.
type visit struct {
	shard *shard
	hash  hash
	prev  int    // the visit before of the same bucket, or -1
	last  int    // of the first of a bucket: the last that charged it, or -1
	slot  *slot  // of the first of a bucket: where that is, held; nil if nowhere
	word  uint64 // of slot

	met   Bucket        // what the charge finds, those before made
	after Bucket        // what it leaves if it is made
	wait  time.Duration // until it fits
	fits  bool          // within the wait allowed
	known bool          // its ID was charged before
	made  bool          // it is charged if the call is: after is not what it found
}

// A call is what is done for several charges at once. Their shards are locked and
// their slots held before its clock is read, and until it ends: so others see all
// of it or nothing, and never is a charge made before one that was made earlier.
type call struct {
	charges []Charge
	visits  []visit
	locked  shardSet
	now     int64 // µs since the Unix epoch
}

// room returns n visits, in few if they fit.
func room(few []visit, n int) []visit {
	if n <= len(few) {
		return few[:n]
	}
	return make([]visit, n)
}

// begin begins a call. visits are zero.
func (g *ledger) begin(charges []Charge, visits []visit) (c call) {
	c = call{charges: charges, visits: visits}
	for i := range visits {
		v := &visits[i]
		v.hash = charges[i].hash()
		v.shard, v.prev, v.last = g.shardOf(v.hash), c.earlier(i), -1
		c.locked |= 1 << g.indexOf(v.hash)
	}
	g.lock(c.locked)
	c.hold(g)
	if c.aged() {
		c.release()
		c.renew()
		c.hold(g)
	}
	return c
}

// earlier returns the last visit before i of the same bucket, or -1.
func (c *call) earlier(i int) int {
	for j := i - 1; j >= 0; j-- {
		if c.visits[j].hash == c.visits[i].hash {
			return j
		}
	}
	return -1
}

// first returns the first visit of the bucket of i.
func (c *call) first(i int) *visit {
	for c.visits[i].prev >= 0 {
		i = c.visits[i].prev
	}
	return &c.visits[i]
}

// hold holds all slots, and then reads the clock.
func (c *call) hold(g *ledger) {
	for i := range c.visits {
		v := &c.visits[i]
		if v.prev >= 0 {
			continue
		}
		t := v.shard.table.Load()
		if place := t.find(v.hash); place >= 0 {
			v.slot = &t.slots[place]
			v.word = v.slot.hold()
		}
	}
	c.now = g.now()
}

// release lets all slots go as they were.
func (c *call) release() {
	for i := range c.visits {
		if v := &c.visits[i]; v.slot != nil {
			v.slot.release(v.word)
			v.slot = nil
		}
	}
}

// aged reports whether a table is too old to count with.
func (c *call) aged() bool {
	for i := range c.visits {
		if c.visits[i].shard.agedLocked(c.now) {
			return true
		}
	}
	return false
}

// renew replaces such tables. Nothing is held.
func (c *call) renew() {
	for i := range c.visits {
		if s := c.visits[i].shard; s.agedLocked(c.now) {
			s.renewLocked(c.now)
		}
	}
}

// raw sets b, which is zero, to what is owed before charges[i] is made, by the
// numbers it was charged with, which if they are l's may be left to l.
func (c *call) raw(i int, l *Limit, b *Bucket) {
	switch v := &c.visits[i]; {
	case v.prev >= 0 && c.visits[v.prev].made:
		*b = c.visits[v.prev].after
	case v.prev >= 0:
		c.raw(v.prev, l, b)
	case v.slot != nil:
		v.shard.readLocked(b, v.slot, v.word, l, c.now)
	}
}

// meet finds out what is owed before charges[i] is made, as its Limit counts.
func (c *call) meet(i int) *visit {
	v, charge := &c.visits[i], &c.charges[i]
	c.raw(i, charge.Limit, &v.met)
	charge.Limit.drain(&v.met, c.now)
	v.known = charge.ID != "" && c.known(i)
	return v
}

// known reports whether the ID of charges[i] was charged before, by this call or
// another.
func (c *call) known(i int) bool {
	v, id := &c.visits[i], c.charges[i].ID
	for j := v.prev; j >= 0; j = c.visits[j].prev {
		if c.visits[j].fits && c.charges[j].ID == id {
			return true
		}
	}
	return v.shard.rememberedLocked(v.hash.named(id), c.now)
}

// try works out what becomes of all charges, at once or, where they are reserved,
// within max. It reports whether all but the DryRun ones fit.
func (c *call) try(reserved bool, max time.Duration) (allowed bool) {
	allowed = true
	for i := range c.visits {
		v, charge := c.meet(i), &c.charges[i]
		v.after = v.met
		switch {
		case v.known:
			v.fits = true
		case reserved:
			v.wait, v.fits = charge.Limit.tryWithin(&v.after, charge.Units(), c.now, max)
		default:
			v.fits = charge.Limit.try(&v.after, charge.Units(), c.now)
		}
		if v.made = v.fits && !v.known; v.made {
			c.first(i).last = i
		}
		allowed = allowed && (v.fits || charge.DryRun)
	}
	return allowed
}

// wait returns how long the slowest charge has to wait that is no DryRun.
func (c *call) wait() (longest time.Duration) {
	for i := range c.visits {
		if !c.charges[i].DryRun {
			longest = max(longest, c.visits[i].wait)
		}
	}
	return longest
}

// settle works out what becomes of all charges.
func (c *call) settle() {
	for i := range c.visits {
		v, charge := c.meet(i), &c.charges[i]
		v.after = v.met
		if !v.known {
			charge.Limit.settle(&v.after, charge.N, charge.at(), c.now)
			v.fits = charge.N != 0
		}
		if v.made = v.after != v.met; v.made { // otherwise it is as if nobody had looked
			c.first(i).last = i
		}
	}
}

// at is c.At in µs since the Unix epoch; zero if there is none.
func (c *Charge) at() int64 {
	if c.At.IsZero() {
		return 0
	}
	return c.At.UnixMicro()
}

// judge appends the Decisions.
func (c *call) judge(dst []Decision, taken bool) []Decision {
	for i := range c.visits {
		v, charge := &c.visits[i], &c.charges[i]
		dst = append(dst, Decision{})
		d := &dst[len(dst)-1]
		left := &v.after
		if !taken || !v.fits {
			found := c.found(i)
			left = &found
		}
		if v.known {
			charge.Limit.describe(d, left, c.now)
			d.Allowed = true
		} else {
			d.judge(c.charges, i, &v.met, left, c.now)
		}
		d.At = time.UnixMicro(c.now)
	}
	return dst
}

// found returns what the call found, as the Limit of charges[i] counts.
func (c *call) found(i int) (b Bucket) {
	v := &c.visits[i]
	if v.prev < 0 {
		return v.met
	}
	if v = c.first(i); v.slot != nil {
		v.shard.readLocked(&b, v.slot, v.word, c.charges[i].Limit, c.now)
	}
	c.charges[i].Limit.drain(&b, c.now)
	return b
}

// end makes the charges, or not.
func (c *call) end(taken bool) {
	for i := range c.visits {
		if v := &c.visits[i]; v.slot != nil && taken && v.last >= 0 {
			v.shard.keepLocked(v.slot, v.hash, c.left(i), c.now)
		} else if v.slot != nil {
			v.slot.release(v.word)
		}
	}
	for i := range c.visits {
		if taken {
			c.add(i)
		}
	}
}

// add keeps what charges[i] is the first to leave. Nothing is held.
func (c *call) add(i int) {
	v, charge := &c.visits[i], &c.charges[i]
	if v.slot == nil && v.last >= 0 {
		v.shard.addLocked(v.hash, c.left(i), c.now)
	}
	if charge.ID != "" && v.fits && !v.known {
		v.shard.rememberLocked(v.hash.named(charge.ID), keyHash(charge.Key), charge.Limit.Remembers(c.now), c.now)
	}
}

// left is what is owed to the bucket that charges[i] is the first to visit.
func (c *call) left(i int) *account {
	last := c.visits[i].last
	return &account{limit: c.charges[last].Limit, Bucket: c.visits[last].after}
}
