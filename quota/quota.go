package quota

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Charge asks for units of one Limit on behalf of one Key:
//
//	quota.Charge{Key: "alice", Limit: perMinute}
//	quota.Charge{Key: "alice", Limit: tokensPerDay, N: 1500}
type Charge struct {
	// Key is what the units are counted for: a user, an address. Any string is valid.
	Key string

	// Limit is the limit to count against, from Policy.Compile. A Key has a separate
	// count for each Limit's Name.
	Limit *Limit

	// N is the number of units. If zero it is 1, but 0 in Settle. Only Settle accepts a
	// negative one.
	N int64

	// DryRun tries a limit without enforcing it. Dry-run charges have counts of their
	// own, and never deny the call. One that fits is taken if the call is allowed; one
	// that does not fit changes nothing.
	DryRun bool

	// ID makes a charge idempotent, so that a call with an unknown outcome can be
	// repeated. A charge with the same ID, Key, Limit's Name and DryRun within the
	// Limit's Window, or until the end of a Calendar's, is allowed and takes nothing; in
	// Settle it has no effect. Only charges that were made are remembered, not denied
	// ones. A refund needs an ID of its own. An ID has at most 256 bytes of any value.
	ID string

	// At is, in Settle, when the charge to correct was made, as returned in Decision.At
	// or by Reserve. If zero, now. A window refunds only what was charged in it, and a
	// log what was charged less than a Window ago; buckets ignore At.
	At time.Time
}

// Units returns how many units c asks for in Take, Peek and Reserve.
func (c *Charge) Units() int64 {
	if c.N == 0 {
		return 1
	}
	return c.N
}

// A Decision is a Store's answer to a Charge. Its numbers hold together at one moment:
// after the charge if the units were taken, and before it if this or another charge of
// the call was denied.
type Decision struct {
	Allowed    bool          // this charge fits, whether or not the others do
	Never      bool          // N exceeds Limit.AtOnce: no wait helps, and RetryAfter is zero
	Limit      int64         // the policy's Quota
	Remaining  int64         // whole units that could be taken now, in [0, Limit.AtOnce]
	RetryAfter time.Duration // until N fits; zero if allowed
	NextAfter  time.Duration // until Remaining+1 units fit; zero if nothing is owed
	ResetAfter time.Duration // until nothing is owed
	Delay      time.Duration // how long an admitted request must wait; zero for all but LeakyBucket
	At         time.Time     // the Store's time of the decision
}

// A Store counts units. Memory is one; redisstore.Store is one that processes share.
// Implementations must be safe for concurrent use, and so must those of Peeker, Settler,
// Reserver and Inspector.
type Store interface {
	// Take makes all charges, or none of them if one that is not a DryRun is denied, and
	// appends a Decision for each to dst. A denial changes nothing.
	//
	// Charges of one Key are atomic. Charges of several keys are atomic in one process
	// and on one Redis. On a Cluster or Ring, those with the smallest limits are taken first
	// and given back on denial: until then others see them as taken.
	//
	// After an error the outcome is unknown: units may have been taken or not. Only after
	// a *ChargeError nothing was.
	Take(ctx context.Context, dst []Decision, charges ...Charge) ([]Decision, error)
}

// A Peeker decides without taking anything.
type Peeker interface {
	// Peek appends the Decisions that Take would make now to dst.
	Peek(ctx context.Context, dst []Decision, charges ...Charge) ([]Decision, error)
}

// A Settler corrects charges afterwards, when the true cost is known.
type Settler interface {
	// Settle charges units where N is positive, into debt if need be, and refunds them
	// where N is negative, never below zero. A debt is at most Limit.MaxDebt: after a
	// *DebtError everything else was made. After another error the outcome is unknown, as
	// with Take.
	Settle(ctx context.Context, charges ...Charge) error
}

// A Reserver takes units that come back later, for callers that wait.
type Reserver interface {
	Store
	Settler
	// Reserve takes all charges if they fit within max. The caller must wait for wait,
	// which ends at at, before using them; later callers wait for these units, too. To
	// give unused units back, call Settle with at as Charge.At.
	//
	// With a LeakyBucket the wait is the Delay, and Burst is no bound. Windows and logs
	// are reserved at most a day ahead, and are full until then.
	//
	// wait is also set if ok is false; it is Forever if no wait is long enough. A DryRun
	// charge causes neither a wait nor a refusal.
	Reserve(ctx context.Context, max time.Duration, charges ...Charge) (
		wait time.Duration, at time.Time, ok bool, err error)
}

// An Inspector shows and resets the counts of a Key.
type Inspector interface {
	// Inspect returns the States of key, sorted by Name, enforced ones before dry runs, and by Shape.
	// Some may owe nothing any more.
	Inspect(ctx context.Context, key string) ([]State, error)

	// Reset forgets everything that key owes, and the IDs that were charged.
	Reset(ctx context.Context, key string) error
}

// A State is one stored count of a Key. Limit.Drain updates it to the present, and
// Limit.Describe explains it.
type State struct {
	Name   string // of the Limit
	DryRun bool   // whether it counts DryRun charges
	Shape  string // of the Limit
	Bucket Bucket
}

// SortStates sorts states as Inspect returns them.
func SortStates(states []State) {
	rank := func(s *State) int {
		if s.DryRun {
			return 1
		}
		return 0
	}
	slices.SortFunc(states, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), rank(&a)-rank(&b), cmp.Compare(a.Shape, b.Shape))
	})
}

// Forever is the wait for what never fits.
const Forever time.Duration = 1<<63 - 1
