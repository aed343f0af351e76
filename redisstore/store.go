package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
)

// A Store counts in Redis, for all processes that share it: a quota.Store, a
// quota.Peeker, a quota.Reserver and a quota.Gate. It needs Redis 6.2 or later, or
// Valkey, and its clock is that of Redis.
//
// A call is one round trip and one script, whatever the number of charges; on a
// Cluster or Ring, one for each Key, and some more if a later one is denied. It is
// executed at most once: nothing that may have been executed is sent again. A call
// ends with Timeout or its context, whichever is first. If it was still waiting to be sent,
// it is never sent; if it was in flight, nobody knows whether it was made.
//
// Calls of one process share round trips. A call is sent at once if none is in flight to its
// server. Otherwise it waits until that one is answered, and is then sent in a batch with all
// that came meanwhile, first come, first served. If Redis is far away, or many calls wait,
// several batches are in flight at once. A batch is one script that makes its calls one after
// the other; on a Cluster or Ring it is one script for each Key, in one pipeline for each
// server. A call that fails does not fail the others of its batch.
//
// The buckets of a Take that Redis denied are remembered until it would fit, but no
// longer than a second. A Take that they still deny is denied without asking Redis. Redis is
// asked about what fits into them, about a Limit of other numbers, about dry runs and
// charges with an ID, and about a Key that this Store has reserved, settled or reset. What
// other processes refund or reset is seen a second later at most. Some 14,000 buckets are
// remembered. See AlwaysAsk.
//
// After a script that was not answered within Timeout, even if its caller had left, calls fail
// at once until Redis answers a probe, which is sent in the background. So a Redis that is
// gone costs the calls in flight one Timeout, and the others nothing. Each master of a Cluster, and each shard
// of a Ring, is judged by itself. Degraded counts the calls that were not decided. Where
// there is no connection, the error says why, and wraps what the client last failed to
// connect with: for that a Store adds a hook to its Client. See Ping.
//
// There is a hash for each Key, named Prefix and Key, with a field for each
// Limit's Name. It expires, soon after all in it is whole. A field that
// cannot be read counts as absent, and is written anew by the next charge.
//
// It is safe for concurrent use and must not be copied. Fields must not change
// once it is in use.
type Store struct {
	// Client is how Redis is reached. If nil, every call fails. A Store adds a hook to it;
	// other hooks must have been added before the Store is used.
	//
	// By a *redis.Client, a call that is the only one is made in its caller's own goroutine,
	// and heeds the deadline of its context, but its cancellation only when Redis has
	// answered or Timeout is over.
	Client redis.UniversalClient

	// Prefix begins the name of every key in Redis. If empty, "heed:quota:".
	Prefix string

	// Timeout is how long a call may take for each script it needs, the wait for
	// others' and the way there and back included. If zero or negative, 50 ms.
	Timeout time.Duration

	// AlwaysAsk has Redis asked also for what it denied less than a second ago. Set it
	// if what other processes give back must be seen at once.
	AlwaysAsk bool

	// HoldTTL is how long a Hold of Acquire keeps its places after the process
	// that has it died. It should be many times Timeout. If zero or negative,
	// 30 s; below 100 ms, 100 ms; above a day, a day.
	HoldTTL time.Duration

	once     sync.Once // guards the making of client
	client   *client
	denials  denials
	corrupt  atomic.Int64
	degraded atomic.Int64
	gate     gateEntries
	script   *script              // if nil, storeScript
	clock    func() time.Duration // if nil, monotonic
}

var (
	_ quota.Store     = (*Store)(nil)
	_ quota.Peeker    = (*Store)(nil)
	_ quota.Reserver  = (*Store)(nil)
	_ quota.Inspector = (*Store)(nil)
)

// Corrupt returns how many times a bucket was found in Redis that nobody here
// has written: not three integers, or from a time to come. Each counts as absent.
func (s *Store) Corrupt() int64 { return s.corrupt.Load() }

// Degraded returns how many calls of Take, Peek, Reserve and Acquire, of a Lease of s as
// well, returned an error instead of a decision, whatever the reason; but not those whose
// arguments were wrong.
func (s *Store) Degraded() int64 { return s.degraded.Load() }

// Take implements quota.Store. An error that is neither a *quota.ChargeError nor
// a redis.Error leaves open whether the charges were made.
func (s *Store) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.decide(ctx, take, dst, charges)
}

// Peek implements quota.Peeker. It always asks Redis.
func (s *Store) Peek(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.decide(ctx, peek, dst, charges)
}

func (s *Store) decide(ctx context.Context, v verb, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
	if err := quota.CheckTake(charges); err != nil || len(charges) == 0 {
		return dst, err
	}
	remembers := !s.AlwaysAsk && v == take
	if remembers {
		if ds, denied := s.denials.deny(dst, charges, s.time()); denied {
			return ds, nil
		}
	}
	parts := s.split(op{verb: v}, charges)
	allowed, err := s.askAll(ctx, parts)
	if err != nil {
		s.degraded.Add(1)
		return dst, err
	}
	if remembers {
		s.denials.learn(parts, allowed)
	}
	return decisions(dst, parts, len(charges)), nil
}

// Reserve implements quota.Reserver.
func (s *Store) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	if err := quota.CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	if len(charges) == 0 {
		return 0, time.Now(), true, nil
	}
	parts := s.split(op{verb: reserve, within: most}, charges)
	if ok, err = s.askAll(ctx, parts); err != nil {
		s.degraded.Add(1)
		return 0, time.Time{}, false, err
	}
	for i := range parts {
		wait = max(wait, parts[i].wait())
	}
	at = time.UnixMicro(parts[0].now)
	if ok {
		at = at.Add(wait)
	}
	return wait, at, ok, nil
}

// Settle implements quota.Settler. Its errors mean what those of Take do.
func (s *Store) Settle(ctx context.Context, charges ...quota.Charge) error {
	if err := quota.CheckSettle(charges); err != nil {
		return err
	}
	charges = slices.DeleteFunc(slices.Clone(charges), func(c quota.Charge) bool { return c.N == 0 })
	if len(charges) == 0 {
		return nil
	}
	parts := s.split(op{verb: settle}, charges)
	var faults []error
	for i := range parts {
		faults = append(faults, s.ask(ctx, parts[i].op))
	}
	err := join(faults...)
	if err != nil && len(parts) > 1 {
		return partial{err}
	}
	return err
}

// evaluate runs a script that is in no batch.
func (s *Store) evaluate(ctx context.Context, script *script, keys []string, args ...any) (any, error) {
	return s.redis().run(ctx, script, keys, args...)
}

func (s *Store) redis() *client {
	s.once.Do(func() {
		s.client = newClient(s.Client, s.timeout())
		s.client.execute = s.execute
	})
	return s.client
}

// time is now, by the clock that denials are remembered by.
func (s *Store) time() time.Duration {
	if s.clock != nil {
		return s.clock()
	}
	return monotonic()
}

func (s *Store) prefix() string {
	if s.Prefix != "" {
		return s.Prefix
	}
	return "heed:quota:"
}

func (s *Store) timeout() time.Duration {
	if s.Timeout <= 0 {
		return 50 * time.Millisecond
	}
	return s.Timeout
}
