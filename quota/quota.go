package quota

import (
	"context"
	"time"
)

// A Charge asks for units of one Limit on behalf of one Key.
type Charge struct {
	// Key is what the units are counted for: a user, an address. Any string is a key of its own.
	Key string

	// Limit is what they are counted against; it must be compiled. One Key has
	// a count for each Limit's Name.
	Limit *Limit

	// N is how many units. If zero, 1, but in Settle none, and only Settle
	// accepts a negative one.
	N int64

	// DryRun charges are decided and counted, apart from others of the same Key
	// and Limit, but never a reason to deny the others. One that fits is taken
	// if the call is allowed; one that does not changes nothing.
	DryRun bool

	// ID, if not empty, has this charge made once: within the Limit's Window, or
	// to the end of a Calendar's, another one with this ID, on the same Key, the
	// same Limit's Name and the same DryRun, is allowed and takes nothing, and in
	// Settle is made no more. So a call whose outcome is unknown can be repeated.
	// Only what was charged is remembered, not what was denied. A refund needs an
	// ID of its own. It is of any 256 bytes.
	ID string

	// At is, in Settle, when the charge that is corrected was made, as
	// Decision.At or Reserve says. If zero, now. A window gives back only what was
	// charged in it, a log what was charged less than a Window ago; buckets do not
	// ask for it: what they are owed has no age.
	At time.Time
}

// Units is how many units c asks of Take, Peek and Reserve.
func (c *Charge) Units() int64 {
	if c.N == 0 {
		return 1
	}
	return c.N
}

// A Decision is what a Store answers to a Charge, all of it in one set of
// numbers that hold at one moment. If the units were taken they are counted in;
// if not, because this or another charge of the call was denied, they are not.
type Decision struct {
	Allowed    bool          // this charge fits, whatever becomes of the others
	Never      bool          // N exceeds Limit.AtOnce: waiting does not help, RetryAfter is zero
	Limit      int64         // the policy's Quota
	Remaining  int64         // whole units that could be taken now, in [0, Limit.AtOnce]
	RetryAfter time.Duration // until N fits; zero if allowed
	NextAfter  time.Duration // until one more unit than Remaining fits; zero if nothing is owed
	ResetAfter time.Duration // until nothing is owed
	Delay      time.Duration // how long what was admitted waits for its turn; zero but for LeakyBucket
	At         time.Time     // the Store's time of the decision
}

// A Store counts. Implementations must be safe for concurrent use.
type Store interface {
	// Take makes all of charges or, if any that is no DryRun is denied, none of
	// them, and appends a Decision for each to dst. A denial changes nothing.
	//
	// Charges of one Key are atomic. Charges of several keys are so in one
	// process and on one Redis; on a Cluster or Ring, narrow ones are taken
	// first and given back on denial: others may see them as taken for that long.
	//
	// An error says that nothing is known: units may have been taken or not.
	// Only a *ChargeError says that nothing was.
	Take(ctx context.Context, dst []Decision, charges ...Charge) ([]Decision, error)
}

// A Peeker decides without taking.
type Peeker interface {
	// Peek appends to dst the Decisions that Take would make now.
	Peek(ctx context.Context, dst []Decision, charges ...Charge) ([]Decision, error)
}

// A Settler corrects a charge afterwards.
type Settler interface {
	// Settle refunds where N is negative, never below zero, and charges where N
	// is positive, into debt if need be.
	Settle(ctx context.Context, charges ...Charge) error
}

// A Reserver takes units that become free within max.
type Reserver interface {
	Store
	Settler
	// Reserve takes all charges if they fit within max, and reports how long to
	// wait before using them, which is until at. Those who come later wait for
	// these units too. If they are not used after all, Settle gives them back: at
	// is its Charge.At.
	//
	// Of a LeakyBucket it waits for its turn, and is not bound by Burst. Windows
	// and logs are reserved no further ahead than a day, and are full until then.
	//
	// wait is set also when not ok, to Forever if no wait is long enough. A
	// DryRun charge neither waits nor refuses.
	Reserve(ctx context.Context, max time.Duration, charges ...Charge) (
		wait time.Duration, at time.Time, ok bool, err error)
}

// An Inspector shows and forgets what is counted of a Key.
type Inspector interface {
	// Inspect returns the States of key, sorted by Name, what is enforced before
	// what is a DryRun. What is owed no more may be among them.
	Inspect(ctx context.Context, key string) ([]State, error)

	// Reset forgets all that key owes, and the IDs that were charged.
	Reset(ctx context.Context, key string) error
}

// A State is one count of a Key, as it is kept: Limit.Drain says what is left of it
// by now, and Limit.Describe what that means.
type State struct {
	Name   string // of the Limit
	DryRun bool   // whether it counts DryRun charges
	Bucket Bucket
}

// Forever is the wait for what will never fit.
const Forever time.Duration = 1<<63 - 1
