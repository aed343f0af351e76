package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
)

//go:embed lua/gate.lua
var gateSource string

var gateScript = newScript(gateSource)

var _ quota.Gate = (*Store)(nil)

// Acquire implements quota.Gate, by one script and one round trip; Release is another.
//
// The places of a key are kept in a sorted set named Prefix, a byte of 1 and key, with a
// member for each Hold, which expires after HoldTTL. While it is held it is renewed, three
// times in that time: all Holds of the Store are by one timer, and those of a key by one
// script. So the places of a process that died are free HoldTTL after it was last heard
// of, and those of one that lives are its own.
//
// A renewal that fails is repeated until it succeeds. If Redis has forgotten a Hold
// meanwhile, as one has that was restarted or failed over, the next renewal takes it once
// more if so many places are free: until then others may have them. It is Lost if they are
// not, or if HoldTTL has passed since it was last renewed, as when this process was
// stopped, or could not reach Redis, for so long. Places that a lost Hold still uses are
// counted again as soon as they are free; its Release takes none from others.
//
// After an error that is no *quota.AcquireError no place is held: if it is unknown whether
// the script was executed, what it may have taken is given back in the background, or
// expires. Calls fail and recover as those of Take do, while what is held stays held.
func (s *Store) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if err := quota.CheckAcquire(limit, n); err != nil {
		return nil, quota.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		s.degraded.Add(1)
		return nil, quota.Decision{}, err
	}
	n = max(n, 1)
	e := s.newGateEntry(key, limit, n)
	sent := time.Now()
	reply, err := s.runGate(ctx, e.key, []gateCommand{{gateTake, e}})
	e.until = sent.Add(s.holdTTL())
	if err != nil {
		s.degraded.Add(1)
		if !unexecuted(err) {
			e.maybe = true
			s.schedule(e, gateDrop, time.Now())
		}
		return nil, quota.Decision{}, err
	}
	d := quota.Decision{
		Allowed:   reply.found[0],
		Never:     n > limit,
		Limit:     limit,
		Remaining: max(0, limit-reply.used),
		At:        time.UnixMicro(reply.now),
	}
	if !d.Allowed {
		return nil, d, nil
	}
	s.schedule(e, gateKeep, sent.Add(s.renewEvery()))
	garbage := func() {
		s.gate.dropped.Add(1)
		s.schedule(e, gateDrop, time.Now())
	}
	return quota.NewHold(func() { s.release(ctx, e) }, garbage, e.lost), d, nil
}

// Dropped returns how many Holds became garbage without having been released. There should
// be none.
func (s *Store) Dropped() int64 { return s.gate.dropped.Load() }

// holdTTL is how long an entry stays in Redis that is not renewed.
func (s *Store) holdTTL() time.Duration {
	if s.HoldTTL <= 0 {
		return 30 * time.Second
	}
	return min(max(s.HoldTTL, 100*time.Millisecond), 24*time.Hour)
}

// A gateVerb is what the script does with an entry.
type gateVerb string

const (
	gateTake gateVerb = "take" // add it, if its places are free; renew it, if it is there
	gateKeep gateVerb = "keep" // renew it, if it is there
	gateDrop gateVerb = "drop" // remove it
)

// A gateCommand is one of those that a script executes.
type gateCommand struct {
	verb  gateVerb
	entry *gateEntry
}

// A gateReply is what the script returns.
type gateReply struct {
	now     int64  // µs since the Unix epoch
	used    int64  // places, by all entries of the key
	corrupt int64  // 1 if the sorted set was as it cannot be
	found   []bool // for each command, whether its entry is there now, or, if it was dropped, was
}

// runGate has commands executed, all about entries of key.
func (s *Store) runGate(ctx context.Context, key string, commands []gateCommand) (gateReply, error) {
	args := make([]any, 0, 1+3*len(commands))
	args = append(args, s.holdTTL().Milliseconds())
	for _, c := range commands {
		args = append(args, string(c.verb), c.entry.member, c.entry.limit)
	}
	value, err := s.evaluate(ctx, gateScript, []string{key}, args...)
	reply, ok := parseGateReply(value, len(commands))
	if err == nil && !ok {
		err = fmt.Errorf("%w %.60q", errReply, fmt.Sprint(value))
	}
	if err != nil {
		s.retry(key, ctx.Err() == nil && !unexecuted(err))
		return gateReply{}, err
	}
	s.corrupt.Add(reply.corrupt)
	return reply, nil
}

// parseGateReply reads a reply to n commands: integers, none negative and all exact in Lua.
func parseGateReply(value any, n int) (reply gateReply, ok bool) {
	list, ok := value.([]any)
	if !ok || len(list) != 3+n {
		return gateReply{}, false
	}
	numbers := make([]int64, len(list))
	for i := range list {
		if numbers[i], ok = list[i].(int64); !ok || numbers[i] < 0 || numbers[i] >= 1<<53 {
			return gateReply{}, false
		}
	}
	reply = gateReply{now: numbers[0], used: numbers[1], corrupt: numbers[2]}
	for _, found := range numbers[3:] {
		reply.found = append(reply.found, found == 1)
	}
	return reply, true
}
