package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
)

//go:embed lua/gate.lua
var gateSource string

var gateScript = newScript(gateSource)

var _ quota.Gate = (*Store)(nil)

// Acquire takes n of the limit places of key for a request in flight; release the Hold when it is
// done:
//
//	hold, decision, err := store.Acquire(ctx, "reports", 20, 1) // at most 20 at a time
//	if err == nil && !decision.Allowed {
//		return errBusy
//	}
//	defer hold.Release() // does nothing for a nil Hold, as after an error
//
// Acquire implements quota.Gate. It is one script and one round trip, and so is Release.
//
// While a Hold is in use, the Store renews it three times in each HoldTTL. (One timer renews all Holds
// of the Store, with one script for each key.) So the places of a process that died are free again
// after HoldTTL.
//
// A renewal that fails is repeated. If Redis has forgotten the Hold, after a restart or a failover,
// the next renewal takes its places again if they are still free. If not, the Hold is Lost. It
// is also Lost if it could not be renewed for HoldTTL, because this process was suspended or cut off
// from Redis. The places of a Lost Hold are counted again as soon as they are free, until it is
// released.
//
// After an error no place is held: if the script may have been executed, the Store gives its places
// back in the background, or they expire. Acquire fails and recovers as Take does; Holds stay held
// meanwhile. The places of a key are a sorted set in Redis, named Prefix, a byte of 1 and key, with
// a member for each Hold.
func (s *Store) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if err := quota.CheckAcquire(limit, n); err != nil {
		return nil, quota.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		s.degraded.Add(1)
		return nil, quota.Decision{}, err
	}
	n = max(n, 1)
	sent := time.Now()
	e := &gateEntry{
		key:    s.prefix() + "\x01" + key,
		member: fmt.Sprintf("%d:%s", n, rand.Text()[:16]),
		limit:  limit,
		lost:   make(chan struct{}),
		until:  sent.Add(s.holdTTL()),
	}
	reply, err := s.runGate(ctx, []gateCommand{{gateTake, e}})
	if err != nil {
		s.degraded.Add(1)
		if !unexecuted(err) {
			e.maybe = true
			s.schedule(e, gateDrop, time.Now())
		}
		return nil, quota.Decision{}, err
	}
	d := quota.Decision{
		Allowed:   reply.found[0] == 1,
		Never:     n > limit,
		Limit:     limit,
		Remaining: max(0, limit-reply.used),
		At:        time.UnixMicro(reply.now),
	}
	if !d.Allowed {
		return nil, d, nil
	}
	garbage := func() {
		s.gate.dropped.Add(1)
		s.schedule(e, gateDrop, time.Now())
	}
	hold := quota.NewHold(func() { s.release(ctx, e) }, garbage, e.lost)
	s.schedule(e, gateKeep, sent.Add(s.renewEvery()))
	return hold, d, nil
}

// Dropped returns how many Holds became garbage without having been released. Each is a bug in the
// program.
func (s *Store) Dropped() int64 { return s.gate.dropped.Load() }

// holdTTL returns how long an entry stays in Redis without a renewal.
func (s *Store) holdTTL() time.Duration {
	if s.HoldTTL <= 0 {
		return 30 * time.Second
	}
	return min(max(s.HoldTTL, 100*time.Millisecond), 24*time.Hour)
}

// A gateVerb is what the script does with one entry.
type gateVerb string

const (
	gateTake gateVerb = "take" // add it if its places are free; renew it if it exists
	gateKeep gateVerb = "keep" // renew it if it exists
	gateDrop gateVerb = "drop" // remove it
)

// A gateCommand is one command of a script call.
type gateCommand struct {
	verb  gateVerb
	entry *gateEntry
}

// A gateReply is what the script returns.
type gateReply struct {
	now   int64   // µs since the Unix epoch
	used  int64   // places in use, by all entries of the key
	found []int64 // for each command, 1 if its entry exists now, or for a drop, existed before
}

// runGate executes commands, all about entries of one key.
func (s *Store) runGate(ctx context.Context, commands []gateCommand) (gateReply, error) {
	args := make([]any, 0, 1+3*len(commands))
	args = append(args, s.holdTTL().Milliseconds())
	for _, c := range commands {
		args = append(args, string(c.verb), c.entry.member, c.entry.limit)
	}
	key := commands[0].entry.key
	value, err := s.evaluate(ctx, gateScript, []string{key}, args...)
	reply := naturals(value)
	if err == nil && len(reply) != 3+len(commands) {
		err = fmt.Errorf("%w %.60q", errReply, fmt.Sprint(value))
	}
	if err != nil {
		s.retry(key, ctx.Err() == nil && !unexecuted(err))
		return gateReply{}, err
	}
	s.corrupt.Add(reply[2])
	return gateReply{now: reply[0], used: reply[1], found: reply[3:]}, nil
}

// naturals returns a list of integers from 0 to 2^53 - 1, or nil if value is anything else.
func naturals(value any) []int64 {
	list, _ := value.([]any)
	numbers := make([]int64, len(list))
	for i := range list {
		n, ok := list[i].(int64)
		if !ok || n < 0 || n >= 1<<53 {
			return nil
		}
		numbers[i] = n
	}
	return numbers
}
