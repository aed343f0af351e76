package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
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
// needs Redis 6.2 or later, or Valkey. (It also runs on miniredis.) Only Redis' clock counts.
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
// Each Key has a string, named Prefix + Key, with a line of text for each count: a call reads it once and
// writes it once, so it is never half written. It expires soon after all its counts are full again. A
// line that cannot be read counts as absent; see Corrupt. A value has at most 64 KiB: beyond that, the
// counts that would be full soonest are forgotten; see Forgotten. IDs of charges are in a sorted set
// beside it.
//
// A line says what its limit looked like: while a roll-out changes a policy, the counts of the old one and
// of the new one lie beside each other until the older is full again. What is charged is charged on
// both, and each process decides by its own.
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

	// Prefix is what the name of every key in Redis begins with. If empty, "heed:quota:2:".
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

	once      sync.Once // guards the creation of client
	client    *client
	denials   denials
	corrupt   atomic.Int64
	forgotten atomic.Int64
	degraded  atomic.Int64
	gate      gateEntries
	script    *script              // if nil, storeScript
	clock     func() time.Duration // if nil, monotonic
}

var (
	_ quota.Store     = (*Store)(nil)
	_ quota.Peeker    = (*Store)(nil)
	_ quota.Reserver  = (*Store)(nil)
	_ quota.Inspector = (*Store)(nil)
)

var (
	//go:embed lua/number.lua
	numberSource string
	//go:embed lua/bucket.lua
	bucketSource string
	//go:embed lua/window.lua
	windowSource string
	//go:embed lua/log.lua
	logSource string
	//go:embed lua/store.lua
	storeSource string

	storeScript = newScript(numberSource+bucketSource+windowSource+logSource+storeSource,
		"TIME", "GET KEY", "SET KEY 1 PX 1", "ZSCORE KEY 1", "ZADD KEY 1 1", "ZREM KEY 1", "ZREMRANGEBYSCORE KEY 1 1",
		"PTTL KEY", "PEXPIRE KEY 1")
)

// Corrupt returns how many values were found in Redis that no Store can have written. Each counts as
// absent.
func (s *Store) Corrupt() int64 { return s.corrupt.Load() }

// Forgotten returns how many counts were forgotten although they were not full, because the value of
// their Key was longer than 64 KiB. If it grows, too many policies count one Key.
func (s *Store) Forgotten() int64 { return s.forgotten.Load() }

// Degraded returns how many calls of Take, Peek, Reserve and Acquire failed to get a decision,
// for whatever reason. Those of a Lease on this Store are included, calls with invalid arguments
// are not.
func (s *Store) Degraded() int64 { return s.degraded.Load() }

// AnswersWithin returns how long a call for one Key may take: Timeout, or its default. By it a
// pace.Shared knows that the Store needs no other guard.
func (s *Store) AnswersWithin() time.Duration { return s.timeout() }

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
	asked := denialRead{}
	if remembers {
		asked = s.denials.read(charges, s.time())
		if ds, denied := s.denials.deny(dst, charges, asked.asked); denied {
			return ds, nil
		}
	}
	parts := s.split(v, 0, charges)
	allowed, err := s.makeAll(ctx, parts)
	if err != nil {
		s.degraded.Add(1)
		return dst, err
	}
	if remembers {
		s.denials.learn(asked, charges, parts, allowed)
	}
	n := len(dst)
	dst = slices.Grow(dst, len(charges))[:n+len(charges)]
	for _, o := range parts {
		for i := range o.charges {
			dst[n+o.place(i)] = o.decision(i)
		}
		o.recycle()
	}
	return dst, nil
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
	parts := s.split(reserve, most, charges)
	if ok, err = s.makeAll(ctx, parts); err != nil {
		s.degraded.Add(1)
		return 0, time.Time{}, false, err
	}
	at = time.UnixMicro(parts[0].now)
	for _, o := range parts {
		wait = max(wait, o.wait())
		o.recycle()
	}
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
	var faults []error
	var cut error
	parts := s.split(settle, 0, charges)
	for _, o := range parts {
		if err := s.ask(ctx, o); err != nil {
			faults = append(faults, err)
			continue
		}
		cut = cmp.Or(cut, o.cut())
		o.recycle()
	}
	if len(faults) > 0 && len(parts) > 1 {
		return partial{join(faults...)}
	}
	return cmp.Or(join(faults...), cut)
}

// ask answers o, whose Keys are on one server.
func (s *Store) ask(ctx context.Context, o *op) error {
	return s.redis().do(ctx, s.prefix()+o.charges[0].Key, o)
}

// execute executes a batch in one round trip, and sets the answers and errors of its ops. It takes one
// script, or on a Cluster or Ring one for each hash tag. It returns an error if a server did not answer. An
// error reply is the error of its op only.
func (s *Store) execute(ctx context.Context, batch []*op) (noAnswer error) {
	noAnswer = s.send(s.client.connections.asking(ctx), s.byTag(batch), 0)
	for _, o := range batch {
		s.forget(o)
	}
	return noAnswer
}

// byTag divides a batch into what one script can execute.
func (s *Store) byTag(batch []*op) (scripts [][]*op) {
	if s.client.single != nil || len(batch) == 1 {
		return [][]*op{batch}
	}
	at := make(map[string]int)
	for _, o := range batch {
		tag := tagOf(s.prefix() + o.charges[0].Key)
		i, known := at[tag]
		if !known {
			i = len(scripts)
			at[tag], scripts = i, append(scripts, nil)
		}
		scripts[i] = append(scripts[i], o)
	}
	return scripts
}

// send executes scripts in one round trip. now is Redis' time as it replied to an earlier attempt, or 0. Where
// nothing was done it sends ops again: for Redis' actual time, or after a refusal each by itself,
// because one may be the reason.
func (s *Store) send(ctx context.Context, scripts [][]*op, now int64) (noAnswer error) {
	expected := cmp.Or(now, time.Now().UnixMicro()) // it matters for the windows of a Calendar
	cmds := make([]sentOnce, len(scripts))
	for i, ops := range scripts {
		keys, args := encode(s.prefix(), ops, expected)
		cmds[i] = s.storeScript().command(ctx, keys, args)
	}
	s.storeScript().sendAll(ctx, s.client.redis, cmds)
	var alone [][]*op
	for i, ops := range scripts {
		value, err := reply(cmds[i])
		if err = s.storeScript().explain(ctx, s.client.redis, []string{s.prefix()}, err); err == nil {
			err = s.decode(ops, value)
		}
		actual, other := errors.AsType[otherTime](err)
		switch {
		case other && now == 0:
			noAnswer = cmp.Or(noAnswer, s.send(ctx, scripts[i:i+1], int64(actual)))
			continue
		case err != nil && isAnswer(err) && len(ops) > 1:
			for j := range ops {
				alone = append(alone, ops[j:j+1])
			}
			continue
		case err != nil && !isAnswer(err):
			noAnswer = cmp.Or(noAnswer, err)
		}
		for _, o := range ops {
			o.err = err
		}
	}
	if len(alone) > 0 && noAnswer == nil {
		return s.send(ctx, alone, now)
	}
	for _, ops := range alone {
		ops[0].err = noAnswer
	}
	return noAnswer
}

func (s *Store) decode(ops []*op, value any) error {
	corrupt, forgotten, err := decode(ops, value)
	s.corrupt.Add(corrupt)
	s.forgotten.Add(forgotten)
	return err
}

func (s *Store) storeScript() *script {
	if s.script != nil {
		return s.script
	}
	return storeScript
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

func (s *Store) prefix() string { return cmp.Or(s.Prefix, "heed:quota:2:") }

func (s *Store) timeout() time.Duration {
	if s.Timeout <= 0 {
		return 50 * time.Millisecond
	}
	return s.Timeout
}
