package redisstore

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	denialSets = 1 << 11 // each with as many denials as there are slots

	// maxDenial is how many bytes a Key and a log may have to be remembered.
	maxDenial = 1 << 10

	// longestDenial is for how long a denial is remembered at most: what other processes
	// give back, reset or allow meanwhile is seen so much later.
	longestDenial = time.Second
)

// denials are the buckets of which Redis denied a Take. A bucket denies what it would deny if
// nothing had happened since but that time has passed: as much as may have, which is counted from
// before Redis was asked. So Redis would deny it, too, unless units were given back that nobody
// here knows of. What a bucket admits is for Redis to decide.
//
// The bucket of a Key is in one of the slots of a set, by the Key's hash. A new one takes the place
// of the one that is remembered for the shortest time. Nothing waits: slots are pointers to what
// does not change. The zero value is ready to use, by many goroutines.
type denials struct {
	any  atomic.Bool // there have been
	sets [denialSets]denialSet
}

type denialSet struct {
	forgotten atomic.Uint64 // how often Keys were: what was asked before is void
	slots     [7]atomic.Pointer[denial]
}

// A denial is one bucket of a call that was denied. It is immutable.
type denial struct {
	key       string
	limit     *quota.Limit // another one may count in other parts, and round
	bucket    quota.Bucket
	ahead     int64  // of Redis' clock, or a little more: µs from monotonic to the Unix epoch's
	until     int64  // when it is forgotten, in µs since the Unix epoch
	forgotten uint64 // of its set
}

// A question is when Redis was asked about charges, as monotonic counts, and how often their Keys
// had been forgotten by then.
type question struct {
	asked     time.Duration
	forgotten uint64
}

var hashSeed = maphash.MakeSeed()

func (d *denials) of(key string) *denialSet {
	return &d.sets[maphash.String(hashSeed, key)%denialSets]
}

// ask is to be called before Redis is.
func (d *denials) ask(charges []quota.Charge, now time.Duration) question {
	q := question{asked: now}
	for i := range charges {
		q.forgotten += d.of(charges[i].Key).forgotten.Load()
	}
	return q
}

// forget forgets all buckets of key, those too that are on their way from Redis: units may have
// been given back.
func (d *denials) forget(key string) { d.of(key).forgotten.Add(1) }

// forget forgets what o may have given back, or shown to have changed.
func (s *Store) forget(o *op) {
	if o.verb == take || o.verb == peek || s.AlwaysAsk {
		return
	}
	for i := range o.charges {
		s.denials.forget(o.charges[i].Key)
	}
}

// learn remembers what Redis found when it answered parts: all were allowed, or one was denied.
func (d *denials) learn(parts []part, allowed bool) {
	var longest time.Duration
	for _, p := range parts {
		longest = max(longest, p.deniedFor())
	}
	for _, p := range parts {
		switch {
		case !allowed:
			d.remember(p.question, p.op, min(longest, longestDenial))
		case d.any.Load():
			d.drop(p.charges)
		}
	}
}

// drop forgets the buckets of charges that were made: they owe more since.
func (d *denials) drop(charges []quota.Charge) {
	for i := range charges {
		c := &charges[i]
		if slot, old := d.of(c.Key).find(c); old != nil && !c.DryRun {
			slot.CompareAndSwap(old, nil)
		}
	}
}

// remember remembers the buckets that o found, for so long.
func (d *denials) remember(q question, o *op, long time.Duration) {
	for i := range o.charges {
		c, bucket := &o.charges[i], o.found[i].before
		if long <= 0 || !isRemembered(c) || len(c.Key)+len(bucket.Log) > maxDenial {
			continue
		}
		set := d.of(c.Key)
		learned := &denial{
			key: strings.Clone(c.Key), limit: c.Limit, bucket: bucket, forgotten: set.forgotten.Load(),
			ahead: o.now - q.asked.Microseconds(), until: o.now + long.Microseconds(),
		}
		if d.ask(o.charges, q.asked) == q { // nothing was forgotten meanwhile
			set.slotFor(learned).Store(learned)
			d.any.Store(true)
		}
	}
}

// isRemembered reports whether c is of a kind that is. One with an ID may have been made before,
// and is then allowed in any state.
func isRemembered(c *quota.Charge) bool { return c.ID == "" && !c.DryRun }

// deniedFor is in what time all charges of o fit that were a reason to deny it, and ever will:
// zero if there were none.
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

// slotFor returns where a denial is to be kept: in place of the same bucket's, or of one that is
// forgotten, or will be first.
func (s *denialSet) slotFor(learned *denial) *atomic.Pointer[denial] {
	best, until := 0, int64(1<<63-1)
	for i := range s.slots {
		old := s.slots[i].Load()
		switch {
		case old == nil || old.forgotten != learned.forgotten:
			best, until = i, 0
		case old.key == learned.key && old.limit.Name() == learned.limit.Name():
			return &s.slots[i]
		case old.until < until:
			best, until = i, old.until
		}
	}
	return &s.slots[best]
}

// find returns the bucket of c, and in which slot it is; or nil.
func (s *denialSet) find(c *quota.Charge) (*atomic.Pointer[denial], *denial) {
	forgotten := s.forgotten.Load()
	for i := range s.slots {
		found := s.slots[i].Load()
		if found != nil && found.key == c.Key && found.limit.Name() == c.Limit.Name() && found.forgotten == forgotten {
			return &s.slots[i], found
		}
	}
	return nil, nil
}

// deny appends the decisions on charges to dst, if it is known that they are denied now: all their
// buckets are remembered, and one does not admit what it is charged, in addition to what charges
// before it are.
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
		_, known := d.of(charges[i].Key).find(&charges[i])
		if known == nil || known.limit != charges[i].Limit || !isRemembered(&charges[i]) || !known.holds(now) {
			return dst, false
		}
		o.now = max(o.now, known.time(now))
		o.found[i].bucket = known.bucket
	}
	for i := range charges {
		c, f := &charges[i], &o.found[i]
		f.before = c.Limit.Drain(f.bucket, o.now)
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

// holds reports whether d is not over, nor of a time to come.
func (d *denial) holds(now time.Duration) bool {
	left := d.until - d.time(now)
	return 0 < left && left <= longestDenial.Microseconds()
}

// time is what Redis' clock says now, in µs, or a little more.
func (d *denial) time(now time.Duration) int64 {
	return d.ahead + (now + time.Microsecond - 1).Microseconds()
}
