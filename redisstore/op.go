package redisstore

import (
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A verb is what an op does.
type verb byte

const (
	take    verb = 't'
	peek    verb = 'p'
	reserve verb = 'r'
	query   verb = 'q' // a reserve that changes nothing
	settle  verb = 's'
	undo    verb = 'u' // settles what a take or reserve took, and forgets its IDs
)

func (v verb) settles() bool { return v == settle || v == undo }

// An op is one or more charges that one server makes together or not at all, with its answer: the value
// that is encoded, batched and decoded. No charge has zero units.
type op struct {
	verb    verb
	within  time.Duration // how long a reservation may wait
	charges []quota.Charge
	places  []int // of the charges in the call, if it has several ops; see split

	done chan struct{} // closed when there is an answer, or err; nil if no other goroutine waits for it
	err  error         // of this op: others of its batch may have succeeded

	now     int64 // Redis' time, in µs since the Unix epoch
	allowed bool  // all charges fit
	found   []found
}

// found is the bucket that Redis found for a charge, drained to the time of the answer. It includes what
// earlier charges of the same op took.
type found struct {
	bucket   quota.Bucket
	fits     bool
	repeated bool // the ID was charged before, so that this charge takes nothing
	adopted  bool // the bucket begins with that of another Shape, which is the one that is stored
}

var ops = sync.Pool{New: func() any { return new(op) }}

// newOp returns an op without charges.
func newOp(v verb, within time.Duration) *op {
	o := ops.Get().(*op)
	*o = op{verb: v, within: within, charges: o.charges[:0], places: o.places[:0], found: o.found[:0]}
	return o
}

// recycle lets another call use o. Nothing may use o any more.
func (o *op) recycle() {
	clear(o.charges) // do not keep Keys and IDs
	clear(o.found)
	ops.Put(o)
}

// weight is about how long Redis works on o, in charges of a token bucket. A charge of a sliding log reads and
// returns all its entries.
func (o *op) weight() (n int) {
	for i := range o.charges {
		n++
		if l := o.charges[i].Limit; l.Shape()[0] == 'l' {
			n += int(l.AtOnce() / 32)
		}
	}
	return n
}

// made reports whether charge i was made, now or before with the same ID.
func (o *op) made(i int) bool { return o.verb != peek && o.allowed && o.found[i].fits }

// before returns the bucket that charge i found, without what earlier charges of o took.
func (o *op) before(i int) quota.Bucket {
	for j := range i {
		if o.charges[j].SameBucket(&o.charges[i]) {
			return o.charges[i].Limit.Drain(o.found[j].bucket, o.now) // the Limits may have other Calendars
		}
	}
	return o.found[i].bucket
}

// after returns the bucket of charge i once it is charged, and how long a reservation must wait. The script
// has decided that it is; the reply has only what it found.
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

// decision returns the decision on charge i.
func (o *op) decision(i int) (d quota.Decision) {
	left := o.before(i)
	if o.made(i) {
		left, _ = o.after(i)
	}
	if o.found[i].repeated {
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

// cut returns an error if o, a settle, did not charge all units.
func (o *op) cut() error {
	for i := range o.charges {
		c, f := &o.charges[i], &o.found[i]
		if cut := c.Limit.Cut(f.bucket, c.N); cut > 0 && !f.repeated {
			return &quota.DebtError{Index: o.place(i), Limit: c.Limit.Name(), Units: c.N, Cut: cut}
		}
	}
	return nil
}

// place returns the index of charge i in its call.
func (o *op) place(i int) int {
	if len(o.places) == 0 {
		return i
	}
	return o.places[i]
}

// undoing returns an op that gives back what o took, or nil if it took nothing.
func (o *op) undoing() *op {
	back := newOp(undo, 0)
	for i, c := range o.charges {
		if o.made(i) && !o.found[i].repeated {
			_, wait := o.after(i)
			c.N, c.At = -c.Units(), time.UnixMicro(o.now).Add(wait)
			back.charges = append(back.charges, c)
		}
	}
	if len(back.charges) == 0 {
		return nil
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
