package redisstore

import (
	"time"

	"github.com/heedhttp/heed/quota"
)

// A verb is what an errand does.
type verb int

const (
	toTake verb = iota
	toReserve
	toSettle
	toRevoke // settle what was taken, and forget its IDs
)

// settles reports whether charges are made whatever the counts.
func (v verb) settles() bool { return v == toSettle || v == toRevoke }

// An errand is what a caller wants of one server: charges that are made together or
// not at all, at least one, and the answer to them. None is about no units.
type errand struct {
	verb    verb
	peek    bool          // nothing is to be made
	max     time.Duration // of a reservation
	charges []quota.Charge
	revoked []revoked // of each charge, if they are revoked

	now     int64   // Redis' time of the answer, in µs since the Unix epoch
	allowed bool    // all charges fit
	visits  []visit // of each charge
}

// A visit is what a charge finds, and what it leaves if it is made. Buckets are
// drained to the time of the answer.
type visit struct {
	before quota.Bucket // as it was before, not drained
	found  quota.Bucket // as the errand found it
	met    quota.Bucket // with what the charges before took
	after  quota.Bucket // with what this one takes
	wait   time.Duration
	fits   bool
	repeat bool // its ID was charged before: it takes nothing
}

// made reports whether charge i was made, which if it is a repetition took nothing.
func (e *errand) made(i int) bool { return !e.peek && e.allowed && e.visits[i].fits }

// took reports whether e took the units of charge i.
func (e *errand) took(i int) bool { return e.made(i) && !e.visits[i].repeat }

// decision is that on charge i.
func (e *errand) decision(i int) (d quota.Decision) {
	v := &e.visits[i]
	left := &v.found
	if e.made(i) {
		left = &v.after
	}
	if v.repeat {
		d = e.charges[i].Limit.Describe(*left, e.now)
		d.Allowed = true
	} else {
		d = quota.Judge(e.charges, i, v.met, *left, e.now)
	}
	d.At = time.UnixMicro(e.now)
	return d
}

// wait is the longest of those of charges that are no DryRun.
func (e *errand) wait() (longest time.Duration) {
	for i := range e.visits {
		if !e.charges[i].DryRun {
			longest = max(longest, e.visits[i].wait)
		}
	}
	return longest
}
