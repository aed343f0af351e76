package redisstore

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	denialSets = 1 << 11 // of as many denials as there are slots

	// maxDenial is how many bytes a Key and a log may have to be remembered.
	maxDenial = 1 << 10

	// longestDenial is for how long a denial is remembered at most: what other processes
	// give back, reset or allow meanwhile is seen so much later.
	longestDenial = time.Second
)

// denials remember the states in which Redis denied a Take, and deny what these states
// deny until Redis would not any more, for longestDenial at most: what costs less than
// fits, and what a Limit of other numbers admits, is not theirs to decide. They never allow.
//
// A state is what Redis told, drained by all the time that can have passed since,
// which is counted from before the question was asked. So it owes no more than the
// one that Redis has, unless units were given back that nobody here knows of.
//
// Each Key has a set of slots, by its hash. What is learned takes the place of the
// denial in it that ends soonest. Nothing waits: what is read and what is written
// are pointers. The zero value is ready to use, by many goroutines.
type denials struct {
	any atomic.Bool // there have been

	once sync.Once // guards the making of what follows
	seed maphash.Seed
	sets []denialSet
}

type denialSet struct {
	forgotten atomic.Uint64 // how many times; what was asked for before is void
	slots     [7]atomic.Pointer[denial]
}

// A denial is the state of one bucket of a call that was denied. It is immutable.
type denial struct {
	key       string
	limit     string
	bucket    quota.Bucket
	ahead     int64  // of Redis' clock, or a little more: µs from monotonic to the Unix epoch's
	over      int64  // when it is forgotten, in µs since the Unix epoch
	forgotten uint64 // of its set
}

// A question is when Redis was asked about charges, as monotonic counts, and how many
// times their Keys had been forgotten by then.
type question struct {
	asked     time.Duration
	forgotten uint64
}

// ask is to be called before Redis is.
func (d *denials) ask(charges []quota.Charge, at time.Duration) question {
	return question{at, d.forgotten(charges)}
}

// forgotten is a number that grows when one of charges' Keys is forgotten.
func (d *denials) forgotten(charges []quota.Charge) (sum uint64) {
	for i := range charges {
		sum += d.of(charges[i].Key).forgotten.Load()
	}
	return sum
}

// forget has all states of key forgotten, those that are still on their way from
// Redis included: units may have been given back.
func (d *denials) forget(key string) { d.of(key).forgotten.Add(1) }

func (d *denials) of(key string) *denialSet {
	d.once.Do(func() {
		d.seed = maphash.MakeSeed()
		d.sets = make([]denialSet, denialSets)
	})
	return &d.sets[maphash.String(d.seed, key)%denialSets]
}

// learn takes note of how Redis answered parts: all were allowed, or one was denied.
func (d *denials) learn(parts []part, allowed bool) {
	if allowed {
		d.drop(parts)
		return
	}
	var over time.Duration
	for i := range parts {
		over = max(over, parts[i].work.over())
	}
	for i := range parts {
		d.note(&parts[i].work, over)
	}
}

// drop forgets the states that parts have changed: more is owed since.
func (d *denials) drop(parts []part) {
	if !d.any.Load() {
		return
	}
	for _, p := range parts {
		for i := range p.work.charges {
			c := &p.work.charges[i]
			if slot, found := d.of(c.Key).find(c); found != nil && !c.DryRun {
				slot.CompareAndSwap(found, nil)
			}
		}
	}
}

// note remembers what r found, until what was denied fits, which is over from zero, or
// for longestDenial.
func (d *denials) note(r *request, over time.Duration) {
	over = min(over, longestDenial)
	for i := range r.charges {
		c, before := &r.charges[i], &r.visits[i].before
		if over <= 0 || !remembered(c) || len(c.Key)+len(before.Log) > maxDenial {
			continue
		}
		set := d.of(c.Key)
		news := &denial{
			key: strings.Clone(c.Key), limit: c.Limit.Name(), bucket: *before, forgotten: set.forgotten.Load(),
			ahead: r.now - r.asked.Microseconds(), over: r.now + over.Microseconds(),
		}
		if d.forgotten(r.charges) == r.question.forgotten {
			set.slotFor(news).Store(news)
			d.any.Store(true)
		}
	}
}

// forget has forgotten what may owe less since e, or what e was about is new.
func (s *Store) forget(e *errand) {
	if e.verb == toTake || s.AlwaysAsk {
		return
	}
	for i := range e.charges {
		s.denials.forget(e.charges[i].Key)
	}
}

// remembered reports whether c is of the kind that is. One with an ID may have been made
// before, and is then allowed in any state.
func remembered(c *quota.Charge) bool { return c.ID == "" && !c.DryRun }

// over is in what time all charges of e would fit that were a reason to deny it, and ever
// will: zero if there were none.
func (e *errand) over() (longest time.Duration) {
	for i := range e.visits {
		c, v := &e.charges[i], &e.visits[i]
		if v.fits || c.DryRun {
			continue
		}
		if wait := c.Limit.Wait(v.met, c.Units(), e.now); wait < quota.Forever {
			longest = max(longest, wait)
		}
	}
	return longest
}

// slotFor returns where news are to be kept: where the same bucket's are, or those
// which are over first.
func (s *denialSet) slotFor(news *denial) *atomic.Pointer[denial] {
	best, over := 0, int64(1<<63-1)
	for i := range s.slots {
		old := s.slots[i].Load()
		switch {
		case old == nil || old.forgotten != news.forgotten:
			best, over = i, 0
		case old.key == news.key && old.limit == news.limit:
			return &s.slots[i]
		case old.over < over:
			best, over = i, old.over
		}
	}
	return &s.slots[best]
}

// deny appends the decisions on charges to dst, if they are known to be denied at the
// given time.
func (d *denials) deny(dst []quota.Decision, charges []quota.Charge, at time.Duration) (_ []quota.Decision, denied bool) {
	var few [4]visit
	e := errand{charges: charges, visits: few[:]}
	if len(charges) > len(few) {
		e.visits = make([]visit, len(charges))
	}
	if !d.answer(&e, at) {
		return dst, false
	}
	for i := range charges {
		dst = append(dst, e.decision(i))
	}
	return dst, true
}

// answer answers e, a Take whose visits it makes, if all its charges' states are known,
// and they deny it at the given time.
func (d *denials) answer(e *errand, at time.Duration) (denied bool) {
	if !d.recall(e, at) {
		return false
	}
	for i := range e.charges {
		e.try(i)
		denied = denied || !e.visits[i].fits
	}
	return denied
}

// recall has e find the states that are remembered, at what may be Redis' time, if there
// is one for each charge.
func (d *denials) recall(e *errand, at time.Duration) (known bool) {
	for i := range e.charges {
		found := d.find(&e.charges[i], at)
		if found == nil {
			return false
		}
		e.now = max(e.now, found.time(at))
		e.visits[i] = visit{before: found.bucket}
	}
	return true
}

// find returns what is remembered of c's bucket and not over, or nil.
func (d *denials) find(c *quota.Charge, at time.Duration) *denial {
	if !remembered(c) {
		return nil
	}
	if _, found := d.of(c.Key).find(c); found != nil && found.time(at) < found.over {
		return found
	}
	return nil
}

// find returns what is remembered of c's bucket, and where; or nil.
func (s *denialSet) find(c *quota.Charge) (*atomic.Pointer[denial], *denial) {
	forgotten := s.forgotten.Load()
	for i := range s.slots {
		found := s.slots[i].Load()
		if found != nil && found.key == c.Key && found.limit == c.Limit.Name() && found.forgotten == forgotten {
			return &s.slots[i], found
		}
	}
	return nil, nil
}

// time is what Redis' clock says at the given time, in µs, or a little more.
func (d *denial) time(at time.Duration) int64 {
	return d.ahead + (at + time.Microsecond - 1).Microseconds()
}

// try works out whether charge i of e fits into what it found, after those before it.
func (e *errand) try(i int) {
	c, v := &e.charges[i], &e.visits[i]
	v.found, v.met = c.Limit.Drain(v.before, e.now), v.before
	for j := range i {
		if e.visits[j].fits && e.charges[j].SameBucket(c) {
			v.met = e.visits[j].after
		}
	}
	v.met = c.Limit.Drain(v.met, e.now)
	v.after, v.fits = c.Limit.Try(v.met, c.Units(), e.now)
}
