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

	mu    sync.RWMutex // guards what follows
	all   map[string]*cooldown
	begun int64 // when Redis began to count changes, as it says
	upto  int64 // the change up to which all were heard
	swept time.Duration
}

// A cooldown is one key's. It may be prolonged, which is still the same round; in
// each round those processes that go by its interval have a seat each.
type cooldown struct {
	until  time.Duration // its end
	mine   time.Duration // the end that this process stands for
	told   time.Duration // the end that Redis surely has
	every  time.Duration // the server's interval, the longest of the round, 0 if unknown
	round  int64         // as Redis numbers it, 0 if that is not known
	ends   int64         // the end by Redis' clock, likewise
	seats  int64         // how many Redis has given
	seat   int64         // which one this process has, or none
	wanted atomic.Bool   // whether it has a use for one
}

const (
	none         = -1
	maxCooldowns = 1 << 16
	linger       = 10 * time.Second // how long after its end a cooldown is kept, for those who hear late
)

// untold reports that Redis is to be told.
func (c *cooldown) untold() bool { return c.mine > c.told }

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
	if now+wait > c.until {
		c.until, c.mine = now+wait, now+wait
	}
	if every > c.every {
		c.every, c.mine, c.told = every, c.until, 0
	}
	if c.untold() {
		t.pending.Store(true)
	}
	return c.untold()
}

// addLocked begins a new round.
func (t *cooldowns) addLocked(key string) *cooldown {
	if t.all == nil {
		t.all = make(map[string]*cooldown)
	}
	if len(t.all) >= maxCooldowns {
		for other := range t.all { // any one
			delete(t.all, other)
			break
		}
	}
	c := &cooldown{seat: none}
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
		if c.turn(c.seats)+linger < now {
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
	d := dispatch{begun: t.begun, upto: t.upto}
	if !t.pending.Swap(false) {
		return d
	}
	for key, c := range t.all {
		if d.full() {
			t.pending.Store(true)
			break
		}
		if c.untold() && now < c.mine {
			d.posts = append(d.posts, post{key, c.mine, c.every})
		} else if c.wanted.Load() && c.seat == none && c.round != 0 {
			d.claims = append(d.claims, claim{key, c.round})
		}
	}
	return d
}

// learn takes note of what Redis said to d, which was sent at asked.
func (t *cooldowns) learn(d dispatch, n news, asked, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.begun != t.begun || n.last < t.upto {
		t.retellLocked()
	}
	if n.upto < n.last {
		t.pending.Store(true)
	}
	t.begun, t.upto = n.begun, n.upto
	for _, p := range d.posts {
		if c := t.all[p.key]; c != nil && c.every == p.every {
			c.told = max(c.told, p.until)
		}
	}
	for _, change := range n.changes {
		t.changeLocked(change, asked, now)
	}
	for i, claim := range d.claims {
		if c := t.all[claim.key]; c != nil && c.round == claim.round && n.seats[i] != none {
			c.seat, c.seats = n.seats[i], max(c.seats, n.seats[i]+1)
		}
	}
}

// retellLocked is for a Redis that has forgotten, or may have.
func (t *cooldowns) retellLocked() {
	for _, c := range t.all {
		c.mine, c.told = c.until, 0
	}
	t.pending.Store(true)
}

// changeLocked goes by the longer end, Redis' or its own. Redis' is the first
// that was heard of it: a reply that took longer would make it seem later.
func (t *cooldowns) changeLocked(change change, asked, now time.Duration) {
	c := t.all[change.key]
	if c == nil {
		if change.over() {
			return
		}
		c = t.addLocked(change.key)
	}
	if c.round != change.round {
		c.beginRound(change.round)
		t.pending.Store(t.pending.Load() || c.wanted.Load())
	}
	if change.ends > c.ends {
		c.ends = change.ends
		c.until = max(c.until, now+change.left)
		c.told = max(c.told, asked+change.left)
	}
	c.every = max(change.every, c.every)
	c.seats = max(c.seats, change.seats)
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
