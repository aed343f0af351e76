package redisstore

import (
	"sync"
	"sync/atomic"
	"time"
)

// cooldowns are those that a process knows of. Its methods take the time of
// monotonic, and its zero value is ready to use.
type cooldowns struct {
	count   atomic.Int32 // how many there are: mostly none
	pending atomic.Bool  // whether there may be something to tell Redis, or more to hear

	mu         sync.RWMutex // guards what follows
	all        map[string]*cooldown
	begun      int64 // when Redis began to count changes, as it says
	upto       int64 // the change up to which all were heard
	swept      time.Duration
	probeEvery time.Duration // what a test has in the place of betweenProbes
}

// A cooldown is one key's. It may be prolonged, which is still the same round; in
// each round those processes that go by its interval have a seat each.
type cooldown struct {
	until  time.Duration // its end
	posted time.Duration // when it was posted, or last probed
	every  time.Duration // the server's interval, the longest of the round, 0 if unknown
	round  int64         // as Redis numbers it, 0 if that is not known
	ends   int64         // the end by Redis' clock, likewise
	seats  int64         // how many Redis has given
	seat   int64         // which one this process has, or none
	wanted atomic.Bool   // whether it has a use for one

	replacements
	debts
	probing
}

// replacements are what is known of those of one key. They outlast a round.
type replacements struct {
	replaced int64         // the change that was the last one, as Redis numbers it, or 0
	outlived time.Duration // the latest end that was replaced: until then somebody may believe in it
}

// debts are what Redis is to be told of one key.
type debts struct {
	mine      time.Duration // the end that this process has posted, or 0
	mineEvery time.Duration // the interval of that
	copying   bool          // what Redis may have forgotten
	replacing bool          // what is to replace all that Redis has
	again     bool          // it was sent before, and perhaps has arrived
	version   uint64        // of all this
}

const (
	none         = -1
	maxCooldowns = 1 << 16
	linger       = 10 * time.Second // how long after its end a cooldown is kept, for those who hear late
)

// untold reports that Redis is to be told.
func (d *debts) untold() bool { return d.mine > 0 || d.copying || d.replacing }

// turn is when the first request goes of the process that has seat.
func (c *cooldown) turn(seat int64) time.Duration {
	return c.until + c.every*time.Duration(seat)
}

// read reports what is left for this process, which until it has a seat waits as
// if it were to get the next one, and whether it has to claim it.
func (t *cooldowns) read(key string, now time.Duration) (wait, every time.Duration, claim bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c := t.all[key]
	switch {
	case c == nil:
		return 0, 0, false
	case c.every == 0:
		return max(0, c.until-now), 0, false
	case c.seat != none:
		return max(0, c.turn(c.seat)-now), c.every * time.Duration(c.seats), false
	case c.turn(c.seats) <= now:
		return 0, 0, false // too late for a seat, and nobody has waited
	}
	claim = !c.wanted.Load() && c.wanted.CompareAndSwap(false, true)
	if claim {
		t.pending.Store(true)
	}
	return c.turn(c.seats) - now, c.every * time.Duration(c.seats+1), claim
}

// post reports whether Redis is to be told.
func (t *cooldowns) post(key string, wait, every, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[key]
	if c == nil || c.until <= now {
		c = t.addLocked(key)
	}
	if end := now + wait; end > c.until || every > c.every {
		c.owe(end, every)
	}
	if now+wait > c.until {
		c.until, c.posted = now+wait, now
	}
	c.every = max(c.every, every)
	if c.untold() {
		t.pending.Store(true)
	}
	return c.untold()
}

// owe takes note of a post. A replacement that was not sent yet brings it along.
func (c *cooldown) owe(end, every time.Duration) {
	c.version++
	if !c.replacing || c.again {
		c.mine, c.mineEvery = max(c.mine, end), max(c.mineEvery, every)
	}
}

// replace has Redis told, whatever it knows.
func (t *cooldowns) replace(key string, wait, every, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var before time.Duration
	if c := t.all[key]; c != nil {
		before = c.until
	}
	c := t.addLocked(key)
	c.until, c.posted, c.every = now+wait, now, every
	c.outlived = max(c.outlived, before)
	c.debts = debts{replacing: true, version: c.version + 1}
	t.pending.Store(true)
}

// addLocked begins a new round. What is known of replacements stays known, and Redis is
// told of one all the same.
func (t *cooldowns) addLocked(key string) *cooldown {
	if t.all == nil {
		t.all = make(map[string]*cooldown)
	}
	c := &cooldown{seat: none}
	if old := t.all[key]; old != nil {
		c.replacements, c.debts = old.replacements, old.debts
		c.mine, c.mineEvery, c.copying = 0, 0, false
	} else if len(t.all) >= maxCooldowns {
		for other := range t.all { // any one
			delete(t.all, other)
			break
		}
	}
	t.all[key] = c
	t.count.Store(int32(len(t.all)))
	return c
}

// sweepLocked forgets what is over, once a second.
func (t *cooldowns) sweepLocked(now time.Duration) {
	if now-t.swept < time.Second {
		return
	}
	t.swept = now
	for key, c := range t.all {
		if max(c.turn(c.seats)+linger, c.outlived) < now {
			delete(t.all, key)
		}
	}
	t.count.Store(int32(len(t.all)))
}

// dispatch returns what Redis is to be told and asked.
func (t *cooldowns) dispatch(now time.Duration) dispatch {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(now)
	d := dispatch{begun: t.begun, upto: t.upto, apart: t.betweenProbesLocked()}
	if !t.pending.Swap(false) {
		return d
	}
	for key, c := range t.all {
		if d.full() {
			t.pending.Store(true)
			break
		}
		if !d.settle(key, c, now) && c.wanted.Load() && c.seat == none && c.round != 0 {
			d.claims = append(d.claims, claim{key, c.round})
		}
		if c.probe == probeWanted {
			c.probe = probeSent
			d.probes = append(d.probes, key)
		}
	}
	return d
}

// settle has Redis told what it is to be told of c, and reports whether there is any.
func (d *dispatch) settle(key string, c *cooldown, now time.Duration) bool {
	whole := instruction{key: key, until: c.until, every: c.every, posted: c.posted,
		known: c.replaced, round: c.round, version: c.version}
	if c.replacing {
		whole.verb = toReplace
		if !c.again {
			whole.known = anyReplacement
		}
		c.again = true
		d.instructions = append(d.instructions, whole)
		return true
	}
	if c.until <= now { // it is too late
		c.mine, c.mineEvery, c.copying = 0, 0, c.copying && c.replaced != 0
	}
	if c.copying {
		whole.verb = toRestore
		d.instructions = append(d.instructions, whole)
	}
	if c.mine > 0 {
		d.instructions = append(d.instructions, instruction{verb: toPost, key: key, until: c.mine, every: c.mineEvery, version: c.version})
	}
	return c.untold()
}

// learn takes note of what Redis said to d.
func (t *cooldowns) learn(d dispatch, n news, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.begun != t.begun || n.last < t.upto {
		t.retellLocked(n.begun != t.begun)
	}
	if n.upto < n.last {
		t.pending.Store(true)
	}
	t.begun, t.upto = n.begun, n.upto
	for _, o := range d.instructions {
		if c := t.all[o.key]; c != nil && c.version == o.version {
			c.settled(o, n.last)
		}
	}
	for _, change := range n.changes {
		t.changeLocked(change, now)
	}
	for i, claim := range d.claims {
		if c := t.all[claim.key]; c != nil && c.round == claim.round && n.seats[i] != none {
			c.seat, c.seats = n.seats[i], max(c.seats, n.seats[i]+1)
		}
	}
	for i, key := range d.probes {
		if c := t.all[key]; c != nil && c.probe == probeSent {
			c.answer(n.granted[i], now)
		}
	}
}

// settled takes note that Redis, whose last change this was, was told o.
func (c *cooldown) settled(o instruction, last int64) {
	switch o.verb {
	case toReplace:
		c.debts = debts{version: c.version}
	case toPost:
		c.mine, c.mineEvery = 0, 0
	case toRestore:
		if c.replaced > last { // Redis does not believe in that number: its clock has gone back by days
			c.replaced = 0
		}
	}
	if o.until == c.until {
		c.copying = false
	}
}

// retellLocked is for a Redis that may have another clock, and has forgotten something, or
// all: the seats, too.
func (t *cooldowns) retellLocked(all bool) {
	for _, c := range t.all {
		c.copying, c.ends = true, 0
		if all {
			c.seats, c.seat = 0, none
			c.wanted.Store(false)
		}
	}
	t.pending.Store(true)
}

// changeLocked goes by the longer end, Redis' or its own, of what was not replaced. Redis'
// is the first that was heard of it: a reply that took longer would make it seem later.
func (t *cooldowns) changeLocked(change change, now time.Duration) {
	c := t.all[change.key]
	if c == nil {
		if change.over() {
			return
		}
		c = t.addLocked(change.key)
	}
	if !c.follow(change) {
		t.pending.Store(true)
		return
	}
	if c.round != change.round {
		c.beginRound(change.round)
		t.pending.Store(t.pending.Load() || c.wanted.Load())
	}
	if change.ends > c.ends {
		c.ends = change.ends
		c.until = max(c.until, now+change.left)
	}
	c.posted = max(c.posted, now-change.ago)
	c.every = max(change.every, c.every)
	c.seats = max(c.seats, change.seats)
	if c.untold() {
		t.pending.Store(true)
	}
}

// follow reports whether change counts, and forgets what it has replaced. A post of this
// process that Redis does not know yet is not forgotten: it is the later one by then.
// Nor is a replacement, unless it may have been told before, when another one after it
// has been told too.
func (c *cooldown) follow(change change) bool {
	newer := change.replaced > c.replaced
	switch {
	case c.replacing && !(c.again && newer):
		c.replaced = max(c.replaced, change.replaced)
		return false
	case newer:
		c.outlived = max(c.outlived, c.until)
		c.until, c.every = c.mine, c.mineEvery
		if c.mine == 0 {
			c.posted = 0
		}
		c.round, c.ends, c.seats, c.seat = 0, 0, 0, none
		c.wanted.Store(false)
		c.replaced, c.copying, c.replacing, c.again = change.replaced, false, false, false
	case change.replaced < c.replaced: // Redis has an older copy of itself, or has forgotten
		c.copying = true
		return change.round > c.replaced
	}
	return true
}

// beginRound forgets the seat, and the interval unless Redis is to be told it still. Who
// wanted a seat in another round has to say so again.
func (c *cooldown) beginRound(round int64) {
	if c.round != 0 {
		c.wanted.Store(false)
		if !c.untold() {
			c.every = 0
		}
	}
	c.round, c.ends, c.seats, c.seat = round, 0, 0, none
}
