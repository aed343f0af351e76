package redisstore

import (
	"context"
	_ "embed"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/bucket.lua
	bucketSource string
	//go:embed lua/take.lua
	takeSource string
	//go:embed lua/settle.lua
	settleSource string

	embedded = newStoreScripts(bucketSource)
)

// storeScripts are what a Store runs.
type storeScripts struct{ take, settle *script }

func newStoreScripts(bucket string) *storeScripts {
	return &storeScripts{take: newScript(bucket + takeSource), settle: newScript(bucket + settleSource)}
}

// A Store counts in Redis, for all processes that share it: a quota.Store, a
// quota.Peeker and a quota.Reserver. It needs Redis 6.2 or later, or Valkey, and
// its clock is that of Redis.
//
// A call is one round trip and one script, whatever the number of charges; on a
// Cluster or Ring, one for each Key, and some more if a later one is denied. It is
// executed at most once: nothing that may have been executed is sent again. A call
// waits no longer for a script than Timeout, nor than its context lets it; a script
// that is left behind may be executed all the same.
//
// After a script that was not answered within Timeout, whether its caller was still
// there or not, calls fail at once until Redis answers again, for which it is asked
// in the background, once at a time; so a Redis that is gone costs the calls under
// way one Timeout, and the others nothing. Each master of a Cluster, and each shard
// of a Ring, is judged by itself.
//
// There is a hash for each Key, named Prefix and Key, with a field for each
// Limit's Name. It expires, a second after all in it is whole. A field that
// cannot be read counts as absent, and is written anew by the next charge.
//
// It is safe for concurrent use and must not be copied. Fields must not change
// once it is in use.
type Store struct {
	// Client is how Redis is reached. If nil, every call fails.
	Client redis.UniversalClient

	// Prefix begins the name of every key in Redis. If empty, "heed:quota:".
	Prefix string

	// Timeout is how long a script may take, the way there and back included. If
	// zero or negative, 50 ms.
	Timeout time.Duration

	calls    caller
	breakers breakers
	corrupt  atomic.Int64
	scripts  *storeScripts // if nil, embedded
}

var (
	_ quota.Store    = (*Store)(nil)
	_ quota.Peeker   = (*Store)(nil)
	_ quota.Reserver = (*Store)(nil)
)

// Corrupt returns how many times a bucket was found in Redis that nobody here
// has written: not three integers, or from a time to come. Each counts as absent.
func (s *Store) Corrupt() int64 { return s.corrupt.Load() }

// Take implements quota.Store. An error that is neither a *quota.ChargeError nor
// a redis.Error leaves open whether the charges were made.
func (s *Store) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if err := quota.CheckTake(charges); err != nil {
		return dst, err
	}
	parts := s.split(charges)
	if _, err := s.take(ctx, parts, 0); err != nil {
		return dst, err
	}
	return decisions(dst, parts, len(charges)), nil
}

// Peek implements quota.Peeker.
func (s *Store) Peek(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if err := quota.CheckTake(charges); err != nil {
		return dst, err
	}
	parts := s.split(charges)
	if err := s.look(ctx, parts, 0); err != nil {
		return dst, err
	}
	return decisions(dst, parts, len(charges)), nil
}

// Reserve implements quota.Reserver.
func (s *Store) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	if err := quota.CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	parts := s.split(charges)
	if ok, err = s.take(ctx, parts, most); err != nil {
		return 0, time.Time{}, false, err
	}
	for _, p := range parts {
		wait = max(wait, p.wait(p.charges))
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
	parts := s.split(charges)
	var faults []error
	for _, p := range parts {
		faults = append(faults, s.settle(ctx, p.charges, s.run))
	}
	err := join(faults...)
	if err != nil && len(parts) > 1 {
		return partial{err}
	}
	return err
}

// settle has charges settled by one script, which is run by the given function.
func (s *Store) settle(ctx context.Context, charges []quota.Charge, run runner) error {
	keys, args := s.arguments(nil, charges, settled)
	if len(keys) == 0 {
		return nil
	}
	reply, err := run(ctx, s.script().settle, keys, args)
	if err != nil {
		return err
	}
	corrupt, ok := reply.(int64)
	if !ok {
		return unexpected(reply)
	}
	s.corrupt.Add(corrupt)
	return nil
}

// ask has p answered by the script that decides: within max, taking or only
// looking.
func (s *Store) ask(ctx context.Context, p *part, max time.Duration, taking bool) (err error) {
	p.answered = answered{now: time.Now().UnixMicro(), allowed: true}
	if len(p.charges) == 0 {
		return nil
	}
	keys, args := s.arguments([]any{microseconds(max), taking}, p.charges, (*quota.Charge).Units)
	reply, err := s.run(ctx, s.script().take, keys, args)
	if err != nil {
		return err
	}
	p.answered, err = parse(reply, len(p.charges))
	s.corrupt.Add(p.corrupt)
	return err
}

// A runner runs a script.
type runner func(ctx context.Context, script *script, keys []string, args []any) (any, error)

// run is a runner, unless the server of keys is known not to answer.
func (s *Store) run(ctx context.Context, script *script, keys []string, args []any) (any, error) {
	server := s.breaker(keys)
	if err := server.pass(s.probe(keys)); err != nil {
		return nil, err
	}
	return s.runJudged(ctx, server, script, keys, args)
}

// runAnyway is a runner, even then.
func (s *Store) runAnyway(ctx context.Context, script *script, keys []string, args []any) (any, error) {
	return s.runJudged(ctx, s.breaker(keys), script, keys, args)
}

// runJudged tells the server's breaker when there is no answer.
func (s *Store) runJudged(ctx context.Context, server *breaker, script *script, keys []string, args []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call, err := s.calls.start(ctx, s.Client, s.timeout(), script, keys, args)
	if err != nil {
		return nil, err
	}
	return call.wait(ctx, func(err error) {
		if err != nil && !unexecuted(err) {
			server.open(err, s.probe(keys))
		}
	})
}

// breaker returns that of the server of keys.
func (s *Store) breaker(keys []string) *breaker {
	return s.breakers.of(serverOf(s.Client, keys[0]))
}

// probe returns a call to the server of keys that changes nothing.
func (s *Store) probe(keys []string) func() error {
	return func() error {
		_, err := s.calls.run(context.Background(), s.Client, s.timeout(), probeScript, keys[:1])
		return err
	}
}

// settled is how many units c settles.
func settled(c *quota.Charge) int64 { return c.N }

// arguments returns the keys of charges, each once, and args with what the
// scripts want to know of each charge that is about any units.
func (s *Store) arguments(args []any, charges []quota.Charge, units func(*quota.Charge) int64) (keys []string, _ []any) {
	for i := range charges {
		c := &charges[i]
		n := units(c)
		if n == 0 {
			continue
		}
		l, field := c.Limit, c.Limit.Name()
		if c.DryRun {
			field += "\tdry run" // no Name has a tab
		}
		var index int
		keys, index = numbered(keys, s.prefix()+c.Key)
		args = append(args, index, field, n, c.DryRun,
			l.Tick().Microseconds(), l.Unit(), l.Rate(), l.Capacity(), l.Most())
	}
	return keys, args
}

// numbered returns keys with key among them, and its place as Lua counts.
func numbered(keys []string, key string) (_ []string, index int) {
	for i := range keys {
		if keys[i] == key {
			return keys, i + 1
		}
	}
	return append(keys, key), len(keys) + 1
}

// microseconds is d rounded down, and not negative.
func microseconds(d time.Duration) int64 { return max(0, d).Microseconds() }

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
