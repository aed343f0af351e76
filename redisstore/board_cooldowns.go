package redisstore

import (
	"cmp"
	"sync/atomic"
	"time"
)

const (
	noSlot       = -1
	maxSlots     = 1 << 12 // that Redis gives in one round
	maxCooldowns = 1 << 16
	keptAfter    = 10 * time.Second // how long a cooldown is kept when it is over, for what Redis says late
	probeApart   = time.Minute      // from a post to the first probe, and from one probe to the next
)

// cooldowns are those that a process knows of. Its methods take the time of
// monotonic, and its zero value is ready to use. The mutex of the syncer guards it.
type cooldowns struct {
	count   atomic.Int32 // how many there are, which may be read without the mutex
	all     map[string]*cooldown
	pending bool  // there may be something that Redis does not know, or has not said
	begun   int64 // when Redis began to number changes, by what it says; 0 if it knows nothing
	upto    int64 // the change up to which all are known
	swept   time.Duration

	probeApart time.Duration // instead of the constant, in tests
}

// A cooldown is one key's. It may be prolonged, which is still the same round; in
// each round those processes that go by its interval have a slot each.
type cooldown struct {
	until  time.Duration // its end
	posted time.Duration // when it was posted, or last probed
	every  time.Duration // the server's interval, the longest of the round, 0 if unknown

	// By what Redis says:
	round int64 // the change that began it, 0 if unknown
	ends  int64 // its end by Redis' clock
	slots int64 // how many were given
	slot  int64 // which one this process has, or noSlot
	claim bool  // this process has a use for one

	// Of replacements, which outlast a round:
	replaced int64         // the change that made the last one, 0 if none did
	outlived time.Duration // the latest end that was replaced: until then some process may believe in it

	// What Redis has not confirmed:
	post      time.Duration // an end that this process has posted, or 0
	postEvery time.Duration // the interval of that
	restore   bool          // Redis may have forgotten it
	replace   bool          // it is to replace what Redis has
	sent      bool          // it was sent before, so that perhaps it has
	version   uint64        // counts what changes any of these

	asked   time.Duration // when this process last asked for a probe
	asking  bool          // Redis has not answered yet
	granted bool          // it has said yes
}

// unconfirmed reports whether Redis is to be told.
func (c *cooldown) unconfirmed() bool { return c.post > 0 || c.restore || c.replace }

// start is when the first request is let go of the process that has slot.
func (c *cooldown) start(slot int64) time.Duration {
	return c.until + c.every*time.Duration(slot)
}

// read reports what is left for this process, which until it has a slot waits as
// if it got the next one, and whether one is to be claimed.
func (t *cooldowns) read(key string, now time.Duration) (wait, every time.Duration, claim bool) {
	c := t.all[key]
	switch {
	case c == nil:
		return 0, 0, false
	case c.every == 0:
		return max(0, c.until-now), 0, false
	case c.slot != noSlot:
		return max(0, c.start(c.slot)-now), c.every * time.Duration(c.slots), false
	case c.start(c.slots) <= now && !c.claim:
		return 0, 0, false // too late for a slot, and nobody has waited
	}
	claim = !c.claim
	c.claim, t.pending = true, t.pending || claim
	return max(0, c.start(c.slots)-now), c.every * time.Duration(c.slots+1), claim
}

// post reports whether Redis is to be told.
func (t *cooldowns) post(key string, wait, every, now time.Duration) bool {
	c, until := t.get(key), now+wait
	if c.until <= now { // another round begins
		*c = cooldown{slot: noSlot, replaced: c.replaced, outlived: c.outlived,
			replace: c.replace, sent: c.sent, version: c.version}
	}
	if until > c.until || every > c.every {
		c.version++
		if !c.replace || c.sent { // or the replacement brings it along
			c.post, c.postEvery = max(c.post, until), max(c.postEvery, every)
		}
	}
	if until > c.until {
		c.until, c.posted = until, now
	}
	c.every = max(c.every, every)
	t.pending = t.pending || c.unconfirmed()
	return c.unconfirmed()
}

// replace makes the cool-down of key the one that is posted now, whatever Redis knows.
func (t *cooldowns) replace(key string, wait, every, now time.Duration) {
	c := t.get(key)
	*c = cooldown{until: now + wait, posted: now, every: every, slot: noSlot,
		replaced: c.replaced, outlived: max(c.outlived, c.until), replace: true, version: c.version + 1}
	t.pending = true
}

// askProbe reports whether Redis is to be asked for a probe of key. If so, takeProbe has
// to follow.
func (t *cooldowns) askProbe(key string, now time.Duration) bool {
	c, apart := t.all[key], t.apart()
	if c == nil || c.asking || c.until-now <= apart || now-c.posted < apart || c.asked != 0 && now-c.asked < apart/60 {
		return false
	}
	c.asked, c.asking, t.pending = now, true, true
	return true
}

// takeProbe returns the answer. If there is none because Redis is lost, it is yes.
func (t *cooldowns) takeProbe(key string, lost bool, now time.Duration) bool {
	c := t.all[key]
	if c == nil {
		return false
	}
	granted := c.granted || c.asking && lost
	if c.asking, c.granted = false, false; granted {
		c.posted = now
	}
	return granted
}

func (t *cooldowns) apart() time.Duration { return cmp.Or(t.probeApart, probeApart) }

// get returns key's cooldown, a new one if there is none.
func (t *cooldowns) get(key string) *cooldown {
	if c := t.all[key]; c != nil {
		return c
	}
	if t.all == nil {
		t.all = make(map[string]*cooldown)
	}
	if len(t.all) >= maxCooldowns {
		for other := range t.all { // any one
			delete(t.all, other)
			break
		}
	}
	c := &cooldown{slot: noSlot}
	t.all[key] = c
	t.count.Store(int32(len(t.all)))
	return c
}

// sweep forgets what is over, once a second.
func (t *cooldowns) sweep(now time.Duration) {
	if now-t.swept < time.Second {
		return
	}
	t.swept = now
	for key, c := range t.all {
		if max(c.start(c.slots)+keptAfter, c.outlived) < now {
			delete(t.all, key)
		}
	}
	t.count.Store(int32(len(t.all)))
}

// request returns what Redis is to know and to answer.
func (t *cooldowns) request(now time.Duration) *boardRequest {
	t.sweep(now)
	q := &boardRequest{begun: t.begun, upto: t.upto}
	if !t.pending {
		return q
	}
	t.pending = false
	for key, c := range t.all {
		if len(q.ops) >= maxOps {
			t.pending = true
			break
		}
		q.add(key, c, t.apart(), now)
	}
	return q
}

// add adds what there is to say of c.
func (q *boardRequest) add(key string, c *cooldown, apart, now time.Duration) {
	if c.until <= now { // it is too late for a post, and what was not replaced need not be restored
		c.post, c.postEvery, c.restore = 0, 0, c.restore && c.replaced != 0
	}
	op := boardOp{key: key, of: c, cooldown: *c}
	switch {
	case c.replace:
		op.name = "replace"
		if !c.sent {
			op.replaced = -1 // whatever was replaced
		}
		c.sent = true
		q.ops = append(q.ops, op)
	case c.restore:
		op.name = "restore"
		q.ops = append(q.ops, op)
	}
	if c.post > 0 { // even if Redis has a later replacement
		op.name, op.until, op.every = "post", c.post, c.postEvery
		q.ops = append(q.ops, op)
	}
	if c.claim && c.slot == noSlot && c.round != 0 && !c.unconfirmed() {
		op.name = "claim"
		q.ops = append(q.ops, op)
	}
	if c.asking {
		op.name, op.every = "probe", apart
		q.ops = append(q.ops, op)
	}
}

// merge takes in what Redis replied to q.
func (t *cooldowns) merge(q *boardRequest, r boardReply, now time.Duration) {
	if t.begun != 0 && r.begun != t.begun {
		t.restore(now)
	}
	t.pending = t.pending || r.upto < r.last
	t.begun, t.upto = r.begun, r.upto
	for i := range q.ops {
		q.ops[i].confirm(r.answers[i], r.last)
	}
	for i := range r.changes {
		t.change(&r.changes[i], now)
	}
}

// restore is for a Redis that has lost some changes, or all, slots among them. It may
// have another clock.
func (t *cooldowns) restore(now time.Duration) {
	for _, c := range t.all {
		c.restore, c.ends = true, 0
		if c.until > now { // or it is too late for another slot
			c.slot = noSlot
		}
	}
	t.pending = true
}

// confirm takes in the answer of Redis, whose last change this is.
func (o *boardOp) confirm(answer, last int64) {
	c := o.of
	switch {
	case o.name == "claim":
		if c.round == o.round && answer != noSlot {
			c.slot, c.slots = answer, max(c.slots, answer+1)
		}
	case o.name == "probe":
		c.asking, c.granted = false, c.asking && answer == 1
	case c.version != o.version: // it has changed since
	case o.name == "replace":
		c.replace, c.sent, c.restore = false, false, false
	case o.name == "post":
		c.post, c.postEvery = 0, 0
	case o.name == "restore":
		c.restore = false
		if c.replaced > last { // Redis does not accept that number: its clock has gone back by days
			c.replaced = 0
		}
	}
}

// change takes in what Redis has of one key.
func (t *cooldowns) change(n *boardChange, now time.Duration) {
	if t.all[n.key] == nil && n.left()+n.every*time.Duration(n.slots) <= 0 {
		return // nobody has a use for it any more
	}
	c := t.get(n.key)
	switch newer := n.replaced > c.replaced; {
	case c.replace && !(c.sent && newer): // what Redis has is to be replaced
		c.replaced, t.pending = max(c.replaced, n.replaced), true
		return
	case newer: // only a post that Redis does not know yet holds on: it is the later one
		*c = cooldown{until: c.post, every: c.postEvery, posted: c.posted, slot: noSlot,
			replaced: n.replaced, outlived: max(c.outlived, c.until),
			post: c.post, postEvery: c.postEvery, version: c.version, asked: c.asked, asking: c.asking, granted: c.granted}
	case n.replaced < c.replaced: // Redis has lost a replacement
		c.restore, t.pending = true, true
		if n.round <= c.replaced {
			return
		}
	}
	if n.round != c.round { // whoever had a use for a slot in the last one has to say so again
		c.claim = c.claim && c.round == 0
		c.round, c.ends, c.slots, c.slot = n.round, 0, 0, noSlot
		if !c.restore {
			c.every = c.postEvery
		}
	}
	if n.ends > c.ends { // the first reply that says so counts: one that took longer would make it later
		c.ends, c.until = n.ends, max(c.until, now+n.left())
	}
	c.posted = max(c.posted, now-n.ago)
	c.every = max(c.every, n.every)
	c.slots = max(c.slots, n.slots)
	t.pending = t.pending || c.claim && c.slot == noSlot
}
