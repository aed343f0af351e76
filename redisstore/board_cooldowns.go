package redisstore

import (
	"sync/atomic"
	"time"
)

const (
	noSlot       = -1
	wantsSlot    = -2
	maxSlots     = 1 << 12 // in one round
	maxCooldowns = 1 << 16
	keptAfter    = 10 * time.Second // how long a cooldown is kept after its end, for late replies of Redis
	askApart     = time.Second      // from one time that Redis is asked for a probe to the next
	probeApart   = time.Minute      // from a post to the first probe, and from one probe to the next
)

// cooldowns are all cool-downs that a process knows. The methods take the time of monotonic. The
// zero value is ready to use. The mutex of the syncer guards it.
type cooldowns struct {
	count   atomic.Int32 // len(all), which may be read without the mutex
	all     map[string]*cooldown
	pending bool  // there may be something to send to Redis
	start   int64 // when Redis started to number changes; 0 before the first reply
	upto    int64 // the number of the latest change that is merged
	swept   time.Duration
}

// A cooldown is the cool-down of one key. A round begins with the post that starts a cool-down, and
// goes on while others prolong it. In each round, every process that releases waiters at the
// interval has one slot.
type cooldown struct {
	until  time.Duration // its end
	posted time.Duration // when it was posted or last probed
	every  time.Duration // the server's interval, the longest of the round; 0 if unknown

	// As Redis reported it:
	round int64 // the change that began the round; 0 if unknown
	ends  int64 // the end by Redis' clock
	slots int64 // how many slots were given
	slot  int64 // the slot of this process, noSlot or wantsSlot

	// Replacements, which outlast a round:
	replaced int64         // the change of the last one; 0 if there was none
	outlived time.Duration // the latest end that was replaced: until then other processes may still use it

	// What Redis has not confirmed:
	post      time.Duration // an end that this process has posted, or 0
	postEvery time.Duration // the interval of that post
	restore   bool          // Redis may have forgotten the cool-down
	replace   bool          // it must replace what Redis has
	sent      bool          // the replacement was sent before: Redis may have it
	version   uint64        // changes with any of these

	asked   time.Duration // when this process last asked for a probe
	asking  bool          // Redis has not answered yet
	granted bool          // Redis has granted the probe
}

// unconfirmed reports whether there is something to send to Redis.
func (c *cooldown) unconfirmed() bool { return c.post > 0 || c.restore || c.replace }

// releaseOf returns when the process with slot releases its first request.
func (c *cooldown) releaseOf(slot int64) time.Duration {
	return c.until + c.every*time.Duration(slot)
}

// read returns what is left of key's cool-down for this process, and whether to claim a slot. Until the
// process has a slot, it waits as if it had the next one.
func (t *cooldowns) read(key string, now time.Duration) (wait, every time.Duration, claim bool) {
	c := t.all[key]
	switch {
	case c == nil:
		return 0, 0, false
	case c.every == 0:
		return max(0, c.until-now), 0, false
	case c.slot >= 0:
		return max(0, c.releaseOf(c.slot)-now), c.every * time.Duration(c.slots), false
	case c.slot == noSlot && c.releaseOf(c.slots) <= now:
		return 0, 0, false // too late for a slot, and no request has waited
	case c.slot == noSlot:
		c.slot, t.pending, claim = wantsSlot, true, true
	}
	return max(0, c.releaseOf(c.slots)-now), c.every * time.Duration(c.slots+1), claim
}

// post records a Post, and reports whether there is something to send to Redis.
func (t *cooldowns) post(key string, wait, every, now time.Duration) bool {
	c, until := t.get(key), now+wait
	if c.until <= now { // another round begins
		*c = cooldown{slot: noSlot, replaced: c.replaced, outlived: c.outlived,
			replace: c.replace, sent: c.sent, version: c.version}
	}
	if until > c.until || every > c.every {
		c.version++
		c.post, c.postEvery = max(c.post, until), max(c.postEvery, every)
	}
	if until > c.until {
		c.until, c.posted = until, now
	}
	c.every = max(c.every, every)
	t.pending = t.pending || c.unconfirmed()
	return c.unconfirmed()
}

// replace replaces the cool-down of key, whatever Redis knows.
func (t *cooldowns) replace(key string, wait, every, now time.Duration) {
	c := t.get(key)
	*c = cooldown{until: now + wait, posted: now, every: every, slot: noSlot,
		replaced: c.replaced, outlived: max(c.outlived, c.until), replace: true, version: c.version + 1}
	t.pending = true
}

// askProbe reports whether to ask Redis for a probe of key. If so, the caller must call takeProbe
// after the sync.
func (t *cooldowns) askProbe(key string, now time.Duration) bool {
	c := t.all[key]
	if c == nil || c.asking || c.until-now <= probeApart || now-c.posted < probeApart ||
		c.asked != 0 && now-c.asked < askApart {
		return false
	}
	c.asked, c.asking, t.pending = now, true, true
	return true
}

// takeProbe reports whether the probe was granted. If Redis did not answer, it is.
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

// get returns key's cooldown, after adding one if there is none.
func (t *cooldowns) get(key string) *cooldown {
	if c := t.all[key]; c != nil {
		return c
	}
	if t.all == nil {
		t.all = make(map[string]*cooldown)
	}
	if len(t.all) >= maxCooldowns {
		for other := range t.all { // any one of them
			delete(t.all, other)
			break
		}
	}
	c := &cooldown{slot: noSlot}
	t.all[key] = c
	t.count.Store(int32(len(t.all)))
	return c
}

// sweep forgets cool-downs that are over, at most once a second.
func (t *cooldowns) sweep(now time.Duration) {
	if now-t.swept < time.Second {
		return
	}
	t.swept = now
	for key, c := range t.all {
		if max(c.releaseOf(c.slots)+keptAfter, c.outlived) < now {
			delete(t.all, key)
		}
	}
	t.count.Store(int32(len(t.all)))
}

// request returns what to send in the next sync.
func (t *cooldowns) request(now time.Duration) *boardRequest {
	t.sweep(now)
	q := &boardRequest{start: t.start, upto: t.upto}
	if !t.pending {
		return q
	}
	t.pending = false
	for key, c := range t.all {
		if len(q.ops) >= maxOps {
			t.pending = true
			break
		}
		q.add(key, c, now)
	}
	return q
}

// add adds the operations that c needs.
func (q *boardRequest) add(key string, c *cooldown, now time.Duration) {
	if c.until <= now { // too late for a post; only a replacement must still be restored
		c.post, c.postEvery, c.restore = 0, 0, c.restore && c.replaced != 0
	}
	op := boardOp{key: key, of: c, cooldown: *c}
	switch {
	case c.replace:
		op.name = "replace"
		if !c.sent {
			op.replaced = -1 // replaces any replacement
		}
		c.sent = true
		q.ops = append(q.ops, op)
	case c.restore:
		op.name = "restore"
		q.ops = append(q.ops, op)
	}
	if c.post > 0 { // even if Redis has a newer replacement
		op.name, op.until, op.every = "post", c.post, c.postEvery
		q.ops = append(q.ops, op)
	}
	if c.slot == wantsSlot && !c.unconfirmed() {
		op.name = "claim"
		q.ops = append(q.ops, op)
	}
	if c.asking {
		op.name, op.every = "probe", probeApart
		q.ops = append(q.ops, op)
	}
}

// merge merges the reply to q.
func (t *cooldowns) merge(q *boardRequest, r boardReply, now time.Duration) {
	if t.start != 0 && r.start != t.start {
		t.restore(now)
	}
	t.pending = t.pending || r.upto < r.last
	t.start, t.upto = r.start, r.upto
	for i := range q.ops {
		q.ops[i].confirm(r.answers[i], r.last)
	}
	for i := range r.changes {
		t.change(&r.changes[i], now)
	}
}

// restore is for a Redis that has lost changes, including slots. Its clock may be another one.
func (t *cooldowns) restore(now time.Duration) {
	for _, c := range t.all {
		c.restore, c.ends = true, 0
		if c.until > now && c.slot >= 0 { // otherwise it is too late for another slot
			c.slot = wantsSlot
		}
	}
	t.pending = true
}

// confirm merges the answer to o. last is the number of Redis' latest change.
func (o *boardOp) confirm(answer, last int64) {
	c := o.of
	switch {
	case o.name == "claim":
		if c.round == o.round && answer != noSlot {
			c.slot, c.slots = answer, max(c.slots, answer+1)
		}
	case o.name == "probe":
		c.asking, c.granted = false, c.asking && answer == 1
	case c.version != o.version: // it has changed since it was sent
	case o.name == "replace":
		c.replace, c.sent, c.restore = false, false, false
	case o.name == "post":
		c.post, c.postEvery = 0, 0
	case o.name == "restore":
		c.restore = false
		if c.replaced > last { // Redis rejects that number: its clock has gone back by days
			c.replaced = 0
		}
	}
}

// change merges one changed cool-down.
func (t *cooldowns) change(n *boardChange, now time.Duration) {
	if t.all[n.key] == nil && n.left()+n.every*time.Duration(n.slots) <= 0 {
		return // it is over
	}
	c := t.get(n.key)
	switch newer := n.replaced > c.replaced; {
	case c.replace && !(c.sent && newer): // this process is about to replace it
		c.replaced, t.pending = max(c.replaced, n.replaced), true
		return
	case newer: // a post that Redis does not know yet is later, and stays
		*c = cooldown{until: c.post, every: c.postEvery, posted: c.posted, slot: noSlot,
			replaced: n.replaced, outlived: max(c.outlived, c.until),
			post: c.post, postEvery: c.postEvery, version: c.version,
			asked: c.asked, asking: c.asking, granted: c.granted}
	case n.replaced < c.replaced: // Redis has lost a replacement
		c.restore, t.pending = true, true
		if n.round <= c.replaced {
			return
		}
	}
	if n.round != c.round { // slots are claimed again in each round
		if c.round != 0 {
			c.slot = noSlot
		}
		c.round, c.ends, c.slots = n.round, 0, 0
		if !c.restore {
			c.every = c.postEvery
		}
	}
	if n.ends > c.ends { // later replies with the same end would only add their round trip to it
		c.ends, c.until = n.ends, max(c.until, now+n.left())
	}
	c.posted = max(c.posted, now-n.ago)
	c.every = max(c.every, n.every)
	c.slots = max(c.slots, n.slots)
	t.pending = t.pending || c.slot == wantsSlot
}
