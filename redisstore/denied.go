package redisstore

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	denialSets = 1 << 11
	longSets   = 1 << 6 // of these, for long logs, which take 4 MiB then

	maxKey  = 1 << 10 // bytes of a Key that is remembered
	longLog = 100     // units of a log whose buckets are few and long

	// longestDenial is how long a denial is remembered at most. What other processes give
	// back, reset or raise meanwhile is seen with that delay.
	longestDenial = time.Second
)

// denials remembers the buckets that Redis denied a Take for. A remembered bucket denies what Redis
// would still deny if only time had passed since, and no less than may have passed: it is counted
// from before Redis was asked. So Redis would deny it too, unless another process gave units back.
// What the bucket would admit, Redis decides.
//
// It is a set-associative cache: the hash of a Key selects a set, and a new bucket takes the slot
// of the one that is forgotten first. It is lock-free, since a denial never changes. The zero
// value is ready to use. It is safe for concurrent use.
type denials struct {
	any  atomic.Bool // something was remembered at least once
	sets [denialSets]denialSet
}

type denialSet struct {
	generation atomic.Uint64 // increases when a Key is forgotten: older denials of the set are void
	slots      [7]atomic.Pointer[denial]
}

// A denial is one bucket of a denied call. It never changes.
type denial struct {
	key        string
	limit      *quota.Limit // another Limit may count in other units
	bucket     quota.Bucket
	ahead      int64  // µs from monotonic to the Unix epoch's time on Redis' clock, or a little more
	until      int64  // when it is forgotten, in µs since the Unix epoch
	generation uint64 // of its set
}

// A denialRead is the state of denials before Redis is asked about charges.
type denialRead struct {
	asked      time.Duration // when, by monotonic
	generation uint64        // the sum of those of all sets
}

var hashSeed = maphash.MakeSeed()

// setOf returns the set for the bucket of c.
func (d *denials) setOf(c *quota.Charge) *denialSet {
	sets := uint64(denialSets)
	if l := c.Limit; l.Shape()[0] == 'l' && l.AtOnce() > longLog {
		sets = longSets
	}
	return &d.sets[maphash.String(hashSeed, c.Key)%sets]
}

// read must be called before Redis is asked about charges.
func (d *denials) read(charges []quota.Charge, now time.Duration) denialRead {
	r := denialRead{asked: now}
	for i := range charges {
		r.generation += d.setOf(&charges[i]).generation.Load()
	}
	return r
}

// forget forgets all buckets of key, including those in replies on their way from Redis, because
// units may have been given back.
func (d *denials) forget(key string) {
	hash := maphash.String(hashSeed, key)
	d.sets[hash%denialSets].generation.Add(1)
	if long := hash % longSets; long != hash%denialSets {
		d.sets[long].generation.Add(1)
	}
}

// forget forgets the buckets for which o may have given units back.
func (s *Store) forget(o *op) {
	if o.verb == take || o.verb == peek || s.AlwaysAsk {
		return
	}
	for i := range o.charges {
		s.denials.forget(o.charges[i].Key)
	}
}

// learn remembers what Redis replied for a call, whose ops are parts: all were allowed, or one was denied.
func (d *denials) learn(r denialRead, charges []quota.Charge, parts []*op, allowed bool) {
	if allowed && !d.any.Load() {
		return
	}
	var longest time.Duration
	for _, o := range parts {
		longest = max(longest, o.deniedFor())
	}
	for _, o := range parts {
		if allowed {
			d.drop(o.charges)
		} else {
			d.remember(r, charges, o, min(longest, longestDenial))
		}
	}
}

// drop forgets the buckets of charges that were made: less is left in them now.
func (d *denials) drop(charges []quota.Charge) {
	for i := range charges {
		c := &charges[i]
		if slot, old := d.setOf(c).find(c); old != nil && !c.DryRun {
			slot.CompareAndSwap(old, nil)
		}
	}
}

// remember remembers the buckets that o, a part of a call with these charges, found, for the duration long.
func (d *denials) remember(r denialRead, charges []quota.Charge, o *op, long time.Duration) {
	for i := range o.charges {
		c, bucket := &o.charges[i], o.before(i)
		if long <= 0 || !isRemembered(c) || o.found[i].adopted || len(c.Key) > maxKey {
			continue
		}
		set := d.setOf(c)
		learned := &denial{
			key: strings.Clone(c.Key), limit: c.Limit, bucket: bucket, generation: set.generation.Load(),
			ahead: o.now - r.asked.Microseconds(), until: o.now + long.Microseconds(),
		}
		if d.read(charges, r.asked) == r { // nothing was forgotten meanwhile
			set.slotFor(learned).Store(learned)
			d.any.Store(true)
		}
	}
}

// isRemembered reports whether a denial of c may be remembered. A charge with an ID may have been made
// before, and is then allowed in any state.
func isRemembered(c *quota.Charge) bool { return c.ID == "" && !c.DryRun }

// deniedFor returns how long until every charge that was denied would fit. It ignores charges that
// can never fit, and returns zero if none was denied.
func (o *op) deniedFor() (longest time.Duration) {
	for i := range o.charges {
		c, f := &o.charges[i], &o.found[i]
		if f.fits || c.DryRun {
			continue
		}
		if wait := c.Limit.Wait(f.bucket, c.Units(), o.now); wait < quota.Forever {
			longest = max(longest, wait)
		}
	}
	return longest
}

// slotFor returns the slot for a denial: that of the same bucket, an unused one, or the one that is
// forgotten first.
func (s *denialSet) slotFor(learned *denial) *atomic.Pointer[denial] {
	best, until := 0, int64(1<<63-1)
	for i := range s.slots {
		old := s.slots[i].Load()
		switch {
		case old == nil || old.generation != learned.generation:
			best, until = i, 0
		case old.key == learned.key && old.limit.Name() == learned.limit.Name():
			return &s.slots[i]
		case old.until < until:
			best, until = i, old.until
		}
	}
	return &s.slots[best]
}

// find returns the denial of c's bucket and its slot, or nil.
func (s *denialSet) find(c *quota.Charge) (*atomic.Pointer[denial], *denial) {
	generation := s.generation.Load()
	for i := range s.slots {
		found := s.slots[i].Load()
		if found != nil && found.key == c.Key && found.limit.Name() == c.Limit.Name() && found.generation == generation {
			return &s.slots[i], found
		}
	}
	return nil, nil
}

// deny appends decisions on charges to dst if Redis would deny them now: all their buckets are remembered,
// and at least one of them has too little left.
func (d *denials) deny(dst []quota.Decision, charges []quota.Charge, now time.Duration) (
	_ []quota.Decision, denied bool,
) {
	if !d.any.Load() {
		return dst, false
	}
	var few [4]found
	o := op{verb: take, charges: charges, found: few[:min(len(few), len(charges))]}
	if len(charges) > len(few) {
		o.found = make([]found, len(charges))
	}
	for i := range charges {
		_, known := d.setOf(&charges[i]).find(&charges[i])
		if known == nil || known.limit != charges[i].Limit || !isRemembered(&charges[i]) || !known.holds(now) {
			return dst, false
		}
		o.now = max(o.now, known.time(now))
		o.found[i].bucket = known.bucket
	}
	for i := range charges {
		c, f := &charges[i], &o.found[i]
		for j := range i {
			if o.found[j].fits && charges[j].SameBucket(c) {
				f.bucket, _ = o.after(j)
			}
		}
		f.bucket = c.Limit.Drain(f.bucket, o.now)
		_, f.fits = c.Limit.Try(f.bucket, c.Units(), o.now)
		denied = denied || !f.fits
	}
	for i := 0; denied && i < len(charges); i++ {
		dst = append(dst, o.decision(i))
	}
	return dst, denied
}

// holds reports whether d is still valid. (It may seem to be from the future after a clock step.)
func (d *denial) holds(now time.Duration) bool {
	left := d.until - d.time(now)
	return 0 < left && left <= longestDenial.Microseconds()
}

// time returns the time on Redis' clock in µs, or a little more.
func (d *denial) time(now time.Duration) int64 {
	return d.ahead + (now + time.Microsecond - 1).Microseconds()
}
