package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/heedhttp/heed/quota"
)

//go:embed lua/gate.lua
var gateSource string

var gateScript = newScript(gateSource)

var _ quota.Gate = (*Store)(nil)

// Acquire implements quota.Gate, by one script and one round trip; Release is
// another.
//
// The places of a key are kept in a sorted set named Prefix, a byte of 1 and key,
// with a member for each Hold, which expires after HoldTTL. While it is held it is
// renewed, three times in that time: all Holds of the Store are by one timer, and
// those of a key by one script. So the places of a process that died are free
// HoldTTL after it was last heard of, and those of one that lives are its own.
//
// A renewal that fails is repeated until it succeeds. If Redis has forgotten a
// Hold meanwhile, as one has that was restarted or failed over, the next renewal
// takes it once more, should there be room for it: until then others may have its
// places. It is Lost if there is no room, or if HoldTTL has passed since it was
// last renewed, as when this process was stopped, or could not reach Redis, for so
// long. Places that a lost Hold still uses are counted again as soon as some are
// free; its Release takes none from others.
//
// After an error that is no *quota.AcquireError no place is held: if it is unknown
// whether the script was executed, what it may have taken is given back in the
// background, or expires. Calls fail and recover as those of Take do, while
// what is held stays held.
func (s *Store) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if err := quota.CheckAcquire(limit, n); err != nil {
		return nil, quota.Decision{}, err
	}
	n = max(n, 1)
	h, sent := newHeld(s.prefix()+"\x01"+key, limit, n), time.Now()
	answer, executed, err := s.askGate(ctx, []notice{{actTake, h}})
	if err != nil {
		s.degraded.Add(1)
		s.missed(ctx, h, sent, executed, err)
		return nil, quota.Decision{}, err
	}
	d := quota.Decision{
		Allowed:   answer.there[0],
		Never:     n > limit,
		Limit:     limit,
		Remaining: max(0, limit-answer.used),
		At:        time.UnixMicro(answer.now),
	}
	if !d.Allowed {
		return nil, d, nil
	}
	s.keep(h, sent)
	return quota.NewHold(func() { s.release(ctx, h) }, func() { s.abandon(h) }, h.lost), d, nil
}

// Dropped returns how many Holds became garbage without having been released.
// There should be none.
func (s *Store) Dropped() int64 { return s.holds.dropped.Load() }

// holdTTL is how long a hold lives in Redis without being renewed.
func (s *Store) holdTTL() time.Duration {
	if s.HoldTTL <= 0 {
		return 30 * time.Second
	}
	return min(max(s.HoldTTL, 100*time.Millisecond), 24*time.Hour)
}

// newHeld is a hold that nobody has taken yet.
func newHeld(key string, limit, n int64) *held {
	n = min(n, limit+1) // which never fits either, and is exact in Lua
	return &held{
		key:    key,
		member: strconv.FormatInt(n, 10) + ":" + rand.Text()[:16],
		limit:  limit,
		lost:   make(chan struct{}),
	}
}

// A notice tells Redis what to do with a hold.
type notice struct {
	act  act
	hold *held
}

type act string

const (
	actTake act = "take" // add it, if there is room and it is not there
	actKeep act = "keep" // renew it, if it is there
	actDrop act = "drop" // remove it
)

// A gateAnswer is what the script replied to some notices.
type gateAnswer struct {
	now     int64 // µs since the Unix epoch
	used    int64 // places
	corrupt int64
	there   []bool // whether each hold is there, or, if it was to be dropped, was
}

// askGate sends notices, all of one key. executed reports whether they may have
// been acted on, as after some errors nobody knows.
func (s *Store) askGate(ctx context.Context, notices []notice) (a gateAnswer, executed bool, err error) {
	args := make([]any, 0, 1+3*len(notices))
	args = append(args, s.holdTTL().Milliseconds())
	for _, n := range notices {
		args = append(args, string(n.act), n.hold.member, n.hold.limit)
	}
	reply, executed, err := s.runGate(ctx, []string{notices[0].hold.key}, args)
	if err != nil {
		return a, executed, err
	}
	a, err = parseGateAnswer(reply, len(notices))
	s.corrupt.Add(a.corrupt)
	return a, true, err
}

// runGate runs the script, unless the server of keys is known not to answer.
func (s *Store) runGate(ctx context.Context, keys []string, args []any) (reply any, executed bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	server := s.breaker(keys)
	if err := server.pass(s.probe(keys)); err != nil {
		return nil, false, s.connections.explain(err)
	}
	reply, err = s.evaluateJudged(ctx, server, gateScript, keys, args)
	return reply, err == nil || !unexecuted(err), err
}

// parseGateAnswer reads a reply to n notices.
func parseGateAnswer(reply any, n int) (a gateAnswer, err error) {
	numbers, ok := naturals(reply)
	if !ok || len(numbers) != 3+n {
		return a, fmt.Errorf("%w %.60q", errReply, fmt.Sprint(reply))
	}
	a = gateAnswer{now: numbers[0], used: numbers[1], corrupt: numbers[2]}
	for _, there := range numbers[3:] {
		a.there = append(a.there, there == 1)
	}
	return a, nil
}

// naturals reads a reply that is a list of integers, none negative and all exact in
// Lua.
func naturals(reply any) (numbers []int64, ok bool) {
	list, ok := reply.([]any)
	for i := range list {
		number, ok := list[i].(int64)
		if !ok || number < 0 || number >= 1<<53 {
			return nil, false
		}
		numbers = append(numbers, number)
	}
	return numbers, ok
}
