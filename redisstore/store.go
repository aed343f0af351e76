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
// waits no longer than Timeout, nor than its context lets it. If it was still in line
// it is then not made; if it was on its way it may be.
//
// Calls of one process share round trips. Nobody waits for company: a call is sent at
// once if none is on its way, and else with others that have come since, first come, first
// served, when that one is answered. (If Redis is far away, or many come at once, several
// round trips are made at once; and by a redis.Client no more than half of many are sent
// together, so that the others make their next calls meanwhile.) One script makes the calls
// of many, one after the other; on a Cluster or Ring there is one for each Key, and those
// for one server are sent together. What fails fails alone.
//
// What a Take was denied is remembered for RetryAfter, but a second at most: what the same
// state still denies is denied without asking Redis. That is never more than Redis would
// deny: what costs less and fits, a Limit whose numbers were raised, dry runs and charges
// with an ID are asked for as ever, and so is all that this Store has reserved, settled or
// reset. What other processes take, refund or reset is seen a second later at most. The
// buckets that are remembered are some 14,000. See AlwaysAsk.
//
// After a script that was not answered within Timeout, whether its caller was still
// there or not, calls fail at once until Redis answers again, for which it is asked
// in the background, once at a time; so a Redis that is gone costs the calls under
// way one Timeout, and the others nothing. Each master of a Cluster, and each shard
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
	// Client is how Redis is reached. If nil, every call fails.
	//
	// A call that finds a redis.Client idle is quickest, by some microseconds, if
	// Options.ContextTimeoutEnabled is set: it is then made in its caller's own
	// goroutine, and heeds its context's deadline, but its cancellation only when
	// Redis has answered or Timeout is over.
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

	calls       caller
	servers     servers
	connections connections
	denials     denials
	corrupt     atomic.Int64
	degraded    atomic.Int64
	holds       holds
	requests    sync.Pool            // of calls without a request
	scripts     *storeScripts        // if nil, embedded
	clock       func() time.Duration // if nil, monotonic
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
	return s.decide(ctx, errand{verb: toTake}, dst, charges)
}

// Peek implements quota.Peeker. It always asks Redis.
func (s *Store) Peek(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.decide(ctx, errand{verb: toTake, peek: true}, dst, charges)
}

func (s *Store) decide(ctx context.Context, like errand, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
	if err := quota.CheckTake(charges); err != nil || len(charges) == 0 {
		return dst, err
	}
	remembers := !s.AlwaysAsk && !like.peek
	if remembers && s.denials.any.Load() {
		if ds, denied := s.denials.deny(dst, charges, s.time(monotonic())); denied {
			return ds, nil
		}
	}
	var one [1]part
	parts := s.split(one[:0], like, charges)
	allowed, err := s.make(ctx, parts)
	if err != nil {
		s.degraded.Add(1)
		return dst, err
	}
	dst = decisions(dst, parts, len(charges))
	if remembers {
		s.denials.learn(parts, allowed)
	}
	s.free(parts)
	return dst, nil
}

// Reserve implements quota.Reserver.
func (s *Store) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	if err := quota.CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	if len(charges) == 0 {
		return 0, time.Now(), true, nil
	}
	var one [1]part
	parts := s.split(one[:0], errand{verb: toReserve, max: most}, charges)
	if ok, err = s.make(ctx, parts); err != nil {
		s.degraded.Add(1)
		return 0, time.Time{}, false, err
	}
	for i := range parts {
		wait = max(wait, parts[i].work.wait())
	}
	at = time.UnixMicro(parts[0].work.now)
	if ok {
		at = at.Add(wait)
	}
	s.free(parts)
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
	parts := s.split(nil, errand{verb: toSettle}, charges)
	var faults []error
	for i := range parts {
		faults = append(faults, s.ask(ctx, parts[i].call))
	}
	err := join(faults...)
	switch {
	case err == nil:
		s.free(parts)
	case len(parts) > 1:
		return partial{err}
	}
	return err
}

// run has errands done by one script of their own, one after the other, as if they came
// one by one. All their keys must be on one server, and in a Cluster in one slot. Its
// errors are those of ask, for all of them.
func (s *Store) run(ctx context.Context, errands ...*errand) error {
	p := newPlan(s.prefix(), errands)
	err := s.attempt(ctx, p, time.Now().UnixMicro())
	if err == errSpecial {
		p.special = true
		err = s.attempt(ctx, p, time.Now().UnixMicro())
	}
	if now, other := err.(otherTime); other {
		err = s.attempt(ctx, p, int64(now))
	}
	if err == nil {
		p.free() // or else it may still be about to be sent
	}
	for _, e := range errands {
		s.forget(e)
	}
	return err
}

// attempt has p done if Redis' clock is somewhere near now.
func (s *Store) attempt(ctx context.Context, p *plan, now int64) error {
	p.encode(now)
	value, err := s.evaluate(ctx, s.script().of(p), p.keys, p.args)
	if err != nil {
		return err
	}
	return s.answer(p, value)
}

// evaluate runs a script by itself, unless the server of keys is known not to answer.
func (s *Store) evaluate(ctx context.Context, script *script, keys []string, args ...any) (any, error) {
	server := s.breaker(keys)
	if err := server.pass(s.probe(keys)); err != nil {
		return nil, s.connections.explain(err)
	}
	return s.evaluateJudged(ctx, server, script, keys, args)
}

// evaluateJudged tells the server's breaker when there is no answer.
func (s *Store) evaluateJudged(ctx context.Context, server *breaker, script *script, keys []string, args []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call, err := s.calls.start(ctx, s.Client, s.timeout(), script, keys, args)
	if err != nil {
		return nil, err
	}
	value, err := call.wait(ctx, func(err error) {
		if err != nil && !unexecuted(err) {
			server.open(err, s.probe(keys))
			s.findReason()
		}
	})
	return value, s.connections.explain(err)
}

// time is that by which s remembers, when monotonic says now.
func (s *Store) time(now time.Duration) time.Duration {
	if s.clock != nil {
		return s.clock()
	}
	return now
}

func (s *Store) script() *storeScripts {
	if s.scripts != nil {
		return s.scripts
	}
	return embedded
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
