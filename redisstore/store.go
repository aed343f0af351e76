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

// A Store keeps the counts of package quota in Redis, for all processes that use the same Prefix:
//
//	store := &redisstore.Store{Client: rdb}
//	limit, err := quota.PerMinute(60).Compile()
//	…
//	ds, err := store.Take(ctx, nil, quota.Charge{Key: "alice", Limit: limit})
//
// It implements quota.Store, quota.Peeker, quota.Reserver, quota.Inspector and quota.Gate. It
// needs Redis 6.2 or later, or Valkey. Only Redis' clock counts.
//
// A call is one script and one round trip, however many charges it has. On a Cluster or Ring it
// is one script for each Key, and a few more if a later Key denies. No script is sent a second
// time if it may have been executed. A call ends after Timeout or with its context: if it was
// still waiting to be sent, it is never sent; if it was in flight, its charges may have been made.
//
// # Batches
//
// Concurrent calls of one process share round trips. A call is sent at once if no other call to
// its server is in flight. Otherwise it waits for that answer, and is sent in one batch with the
// calls that came meanwhile, first come, first served. If Redis is far away, or many calls wait,
// several batches are in flight at once. A batch is one script, or on a Cluster or Ring one
// script for each Key, in one pipeline for each server. A call that fails does not make the
// others of its batch fail.
//
// # Denials are remembered
//
// When Redis denies a Take, the Store remembers the buckets until the Take would fit, for a second at
// most, and denies further Takes without asking Redis. So a refund or a reset by another process
// is seen within a second. Redis is still asked about a Take that the remembered buckets would
// admit, about dry runs and charges with an ID, and about a Key for which this Store has called
// Reserve, Settle or Reset. Some 14,000 buckets are remembered. To ask Redis always, set
// AlwaysAsk.
//
// # When Redis does not answer
//
// After a script without an answer within Timeout, calls fail at once until Redis answers a
// probe in the background. So a Redis that is down costs the calls in flight one Timeout, and
// later calls nothing. Each master of a Cluster, and each shard of a Ring, has its own breaker.
// If there is no connection, the error says why, as the client's last dial did: the Store adds a
// hook to its Client for this. See Ping and Degraded.
//
// # Keys in Redis
//
// Each Key has a hash, named Prefix + Key, with a field for each Limit's Name. It expires soon
// after all its buckets are full again. A field that cannot be read counts as absent, and the
// next charge overwrites it.
//
// A Store is safe for concurrent use and must not be copied. Its fields must not change once it
// is in use.
type Store struct {
	// Client connects to Redis. If nil, every call fails. The Store adds a hook to it on first
	// use; add other hooks before that.
	//
	// With a *redis.Client, a call without concurrent calls runs in its caller's goroutine. If
	// its context is canceled, it returns only when Redis has answered or Timeout is over.
	Client redis.UniversalClient

	// Prefix is what the name of every key in Redis begins with. If empty, "heed:quota:".
	Prefix string

	// Timeout bounds each script of a call, the wait in the queue included. If zero or
	// negative, 50 ms.
	Timeout time.Duration

	// AlwaysAsk turns off the memory of denials, so that what other processes give back is
	// seen at once. A key that is denied then costs a round trip for each call.
	AlwaysAsk bool

	// HoldTTL is how long the places of a Hold stay taken after its process has died; see
	// Acquire. It should be many times Timeout. If zero or negative, 30 s; below 100 ms,
	// 100 ms; above a day, a day.
	HoldTTL time.Duration

	once     sync.Once // guards the creation of client
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

// Corrupt returns how many values were found in Redis that no Store can have written, such as
// text, or a time in the future. Each counts as absent.
func (s *Store) Corrupt() int64 { return s.corrupt.Load() }

// Degraded returns how many calls of Take, Peek, Reserve and Acquire failed to get a decision,
// for whatever reason. Those of a Lease on this Store are included, calls with invalid arguments
// are not.
func (s *Store) Degraded() int64 { return s.degraded.Load() }

// Take implements quota.Store. After an error, the charges may have been made, unless it is a
// *quota.ChargeError or a redis.Error.
func (s *Store) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.decide(ctx, take, dst, charges)
}

// Peek implements quota.Peeker. It always asks Redis.
func (s *Store) Peek(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.decide(ctx, peek, dst, charges)
}

func (s *Store) decide(
	ctx context.Context, v verb, dst []quota.Decision, charges []quota.Charge,
) ([]quota.Decision, error) {
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
func (s *Store) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (
	wait time.Duration, at time.Time, ok bool, err error,
) {
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

// Settle implements quota.Settler. Its errors mean the same as those of Take.
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

// evaluate runs a script outside of any batch.
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

// time returns the current time of the clock that denials use.
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
