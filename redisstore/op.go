package redisstore

import (
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A verb is what an op does, as store.lua names it.
type verb string

const (
	take    verb = "take"
	peek    verb = "peek"
	reserve verb = "reserve"
	settle  verb = "settle"
	revoke  verb = "revoke" // settles what a take took, and forgets its IDs
)

// An op is one or more charges that one server makes together or not at all, with its answer. No
// charge has zero units.
type op struct {
	verb    verb
	within  time.Duration // how long a reservation may wait
	charges []quota.Charge

	now     int64 // Redis' time, in µs since the Unix epoch
	allowed bool  // all charges fit
	found   []found
}

// found is the bucket that Redis found for a charge, drained to the time of the answer. It includes
// what earlier charges of the same op took.
type found struct {
	bucket   quota.Bucket
	before   quota.Bucket // without what earlier charges took
	fits     bool
	repeated bool // the ID was charged before, so that this charge takes nothing
}

func (v verb) settles() bool { return v == settle || v == revoke }

// made reports whether charge i was made, now or before with the same ID.
func (o *op) made(i int) bool { return o.verb != peek && o.allowed && o.found[i].fits }

// took reports whether o itself took the units of charge i.
func (o *op) took(i int) bool { return o.made(i) && !o.found[i].repeated }

// after returns the bucket of charge i once it is charged, and how long a reservation must wait. It
// repeats the script's computation, whose result is not in the reply.
func (o *op) after(i int) (b quota.Bucket, wait time.Duration) {
	c, f := &o.charges[i], &o.found[i]
	switch {
	case f.repeated:
		return f.bucket, 0
	case o.verb == reserve:
		b, wait, _ = c.Limit.TryWithin(f.bucket, c.Units(), o.now, o.within)
	case o.verb.settles():
		b = c.Limit.Settle(f.bucket, c.N, chargedAt(c), o.now)
	default:
		b, _ = c.Limit.Try(f.bucket, c.Units(), o.now)
	}
	return b, wait
}

// left returns the bucket of charge i after o.
func (o *op) left(i int) quota.Bucket {
	if !o.made(i) {
		return o.found[i].before
	}
	b, _ := o.after(i)
	return b
}

// decision returns the decision on charge i.
func (o *op) decision(i int) (d quota.Decision) {
	if left := o.left(i); o.found[i].repeated {
		d = o.charges[i].Limit.Describe(left, o.now)
		d.Allowed = true
	} else {
		d = quota.Judge(o.charges, i, o.found[i].bucket, left, o.now)
	}
	d.At = time.UnixMicro(o.now)
	return d
}

// wait returns the longest wait of all charges except dry runs.
func (o *op) wait() (longest time.Duration) {
	for i := range o.charges {
		if _, wait := o.after(i); !o.charges[i].DryRun {
			longest = max(longest, wait)
		}
	}
	return longest
}

// revocation returns an op that gives back what o took. It has no charges if o took nothing.
func (o *op) revocation() *op {
	back := &op{verb: revoke}
	for i, c := range o.charges {
		if o.took(i) {
			_, wait := o.after(i)
			c.N, c.At = -c.Units(), time.UnixMicro(o.now).Add(wait)
			back.charges = append(back.charges, c)
		}
	}
	return back
}

// chargedAt returns c.At in µs since the Unix epoch, or 0 if it is not set.
func chargedAt(c *quota.Charge) int64 {
	if c.At.IsZero() {
		return 0
	}
	return max(1, c.At.UnixMicro())
}

// An encoder builds the KEYS and ARGV of store.lua, whose first comment describes them.
type encoder struct {
	prefix string
	now    int64 // the expected time of Redis, in µs since the Unix epoch
	keys   []string
	keyAt  map[string]int
	limits []any
	limit  map[*quota.Limit]int
	ops    []any
}

// encodeOps returns the KEYS and ARGV for ops.
func encodeOps(prefix string, ops []*op, now int64) (keys []string, args []any) {
	e := encoder{prefix: prefix, now: now, keyAt: make(map[string]int), limit: make(map[*quota.Limit]int)}
	for _, o := range ops {
		e.ops = append(e.ops, string(o.verb))
		if o.verb == reserve {
			e.ops = append(e.ops, max(0, o.within).Microseconds())
		}
		e.ops = append(e.ops, len(o.charges))
		for i := range o.charges {
			e.addCharge(&o.charges[i], o.verb)
		}
	}
	args = append(make([]any, 0, 1+len(e.limits)+len(e.ops)), len(e.limit))
	return e.keys, append(append(args, e.limits...), e.ops...)
}

func (e *encoder) addCharge(c *quota.Charge, v verb) {
	n, at, flags := c.Units(), int64(0), ""
	if v.settles() {
		n, at = c.N, chargedAt(c)
	}
	if c.DryRun {
		flags += "d"
	}
	if at != 0 {
		flags += "a"
	}
	if c.ID != "" {
		flags += "i"
	}
	n = min(max(n, -exact), exact+1) // exact+1 can never fit
	e.ops = append(e.ops, e.key(e.prefix+c.Key), e.limitAt(c.Limit), n, flags)
	if at != 0 {
		e.ops = append(e.ops, min(at, exact))
	}
	if c.ID != "" {
		e.ops = append(e.ops, c.ID, e.key(idSetOf(e.prefix, c.Key)))
	}
}

// key returns the index of name in KEYS, counted from 1, after adding it if necessary.
func (e *encoder) key(name string) int {
	at, known := e.keyAt[name]
	if !known {
		e.keys = append(e.keys, name)
		at = len(e.keys)
		e.keyAt[name] = at
	}
	return at
}

// limitAt returns the index of l in the limits, counted from 1, after adding it if necessary.
func (e *encoder) limitAt(l *quota.Limit) int {
	at, known := e.limit[l]
	if known {
		return at
	}
	at = len(e.limit) + 1
	e.limit[l] = at
	p := l.Policy()
	window := p.Window.Microseconds()
	if p.Calendar != 0 {
		window = 0
	}
	e.limits = append(e.limits, p.Name, int(p.Algorithm), l.Tick().Microseconds(), l.Rate(), window,
		l.Capacity(), l.Most(), l.Unit())
	if p.Calendar != 0 {
		near := l.Starts(e.now)
		far := l.Starts(near[3])
		e.limits = append(e.limits, near[0], near[1], near[2], near[3], far[2], far[3])
	}
	return at
}

// An otherTime is an error: Redis' clock is so far off that the windows of a Calendar were encoded
// for another time. Nothing was done. Its value is Redis' time, for which to encode the ops again.
type otherTime int64

func (t otherTime) Error() string {
	return fmt.Sprintf("redisstore: the clock of Redis differs too much: it says %d µs since the Unix epoch", int64(t))
}

// decodeReply sets the answers of ops from the reply of store.lua. It returns how many values in Redis
// were invalid.
func decodeReply(ops []*op, value any) (corrupt int64, err error) {
	r := replyReader{}
	r.rest, _ = value.([]any)
	now := r.number()
	if len(r.rest) == 0 && !r.failed {
		return 0, otherTime(now)
	}
	corrupt = r.number()
	for _, o := range ops {
		o.now, o.allowed = now, r.number() == 1
		o.found = make([]found, len(o.charges))
		for i := range o.found {
			o.decodeFound(i, &r)
		}
	}
	if r.failed || len(r.rest) > 0 {
		return 0, fmt.Errorf("%w %.60q", errReply, fmt.Sprint(value))
	}
	return corrupt, nil
}

// decodeFound reads the answer to charge i.
func (o *op) decodeFound(i int, r *replyReader) {
	c, f, outcome := &o.charges[i], &o.found[i], r.natural()
	bucket := func() quota.Bucket {
		return quota.Bucket{Time: r.natural(), Level: r.natural(), Unit: c.Limit.Unit(), Prev: r.natural(), Log: r.text()}
	}
	f.fits, f.repeated, f.bucket = outcome%4 > 0, outcome%4 == 2, bucket()
	f.before = f.bucket
	if outcome >= 4 {
		f.before = bucket()
		return
	}
	for j := range i {
		if o.charges[j].SameBucket(c) {
			f.before = o.found[j].before
			return
		}
	}
}
