package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed lua/board.lua
var boardSource string

var boardScript = newScript(boardSource)

const (
	// pollEvery is the time between syncs that nothing else triggers, because messages get lost.
	pollEvery = time.Second
	// searchEvery is the same while there is no subscription. It is also the pause after two
	// failures in a row; each further failure doubles it, up to pollEvery.
	searchEvery = 100 * time.Millisecond
	// againAfter is the pause after a single failure, and before a sync that the last one made
	// necessary.
	againAfter = 5 * time.Millisecond
)

var errClosed = errors.New("redisstore: Board is closed")

// A syncer exchanges cool-downs between a process and Redis. Its goroutine makes one sync after the
// other: it sends what the process has posted, in one script call, and merges the reply.
//
// A syncer must not refer to its Board, which could then never become garbage.
type syncer struct {
	client *client
	keys   []string

	ctx        context.Context // ends when the Board is closed
	close      context.CancelFunc
	wake       chan struct{} // with a capacity of one
	subscribed atomic.Bool   // to the changes of other processes
	abandoned  atomic.Bool   // the Board is garbage
	syncErr    onceError     // of a sync that no caller awaited
	subErr     onceError     // why there is no subscription

	mu    sync.Mutex // guards what follows
	known cooldowns
	next  *pendingSync
	lost  error // why the last sync failed, or nil
}

// A pendingSync is a sync that is running or is yet to start.
type pendingSync struct {
	done    chan struct{} // closed at its end
	err     error         // its result
	awaited bool          // a caller will return err
}

func newSyncer(b *Board) *syncer {
	s := &syncer{client: newClient(b.Client, b.timeout()), keys: b.keys()}
	s.ctx, s.close = context.WithCancel(context.Background())
	s.wake = make(chan struct{}, 1)
	s.next = &pendingSync{done: make(chan struct{})}
	return s
}

func (s *syncer) start() {
	go s.run()
	if isNil(s.client.redis) {
		return
	}
	changes := &subscription{
		client: s.client.redis, channel: s.keys[0],
		started: func() { s.subErr.take(); s.subscribed.Store(true); s.wakeUp() }, // earlier messages may be lost
		message: func(string) { s.wakeUp() },
		stopped: func() { s.subscribed.Store(false); s.wakeUp() }, // from now on, sync more often
		failed:  s.subErr.put,
	}
	go changes.run(s.ctx)
}

// wakeUp makes the next sync start now.
func (s *syncer) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // a sync is already due
	}
}

// flush blocks until a sync that starts from now on has ended, and returns its error. It blocks no
// longer than the timeout or ctx, and not at all while Redis does not answer.
func (s *syncer) flush(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return errClosed
	}
	s.mu.Lock()
	next, lost := s.next, s.lost
	next.awaited = true
	s.mu.Unlock()
	if lost != nil {
		return lost
	}
	s.wakeUp()
	within, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	select {
	case <-next.done:
		return next.err
	case <-within.Done():
		return fmt.Errorf("redisstore: Redis has not answered yet: %w", within.Err())
	case <-s.ctx.Done():
		return errClosed
	}
}

// run syncs until the Board is closed or garbage.
func (s *syncer) run() {
	defer s.close()
	for failures := 0; s.ctx.Err() == nil && !s.abandoned.Load(); {
		if s.sync() {
			failures = 0
		} else {
			failures++
		}
		s.pause(failures)
	}
}

// pause blocks until the next sync is due. After a failure, wakeUp cannot make it due sooner.
func (s *syncer) pause(failures int) {
	s.mu.Lock()
	more := s.known.pending
	s.mu.Unlock()
	wake, pause := s.wake, pollEvery
	switch {
	case failures > 1:
		wake, pause = nil, min(pollEvery, searchEvery<<min(failures-2, 4))
	case failures == 1:
		wake, pause = nil, againAfter
	case more:
		pause = againAfter
	case !s.subscribed.Load():
		pause = searchEvery
	}
	select {
	case <-wake:
	case <-time.After(pause):
	case <-s.ctx.Done():
	}
}

// sync makes one sync, and reports whether Redis answered.
func (s *syncer) sync() bool {
	asked := monotonic()
	s.mu.Lock()
	this := s.next
	s.next = &pendingSync{done: make(chan struct{})}
	q := s.known.request(asked)
	s.mu.Unlock()

	var r boardReply
	value, err := s.client.runPatiently(s.ctx, boardScript, s.keys, q.args(asked)...)
	if err == nil {
		r, err = parseBoardReply(value, len(q.ops))
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost = err; err != nil {
		s.known.pending = true
	} else {
		s.known.merge(q, r, monotonic())
		if r.refusal != "" {
			err = fmt.Errorf("redisstore: other processes see the cool-down up to a second late: %.200s", r.refusal)
		}
	}
	if s.ctx.Err() != nil {
		err = errClosed
	}
	if this.err = err; err != nil && err != errClosed && !this.awaited {
		s.syncErr.put(err)
	}
	close(this.done)
	return s.lost == nil
}

// A boardRequest is what one sync sends to Redis.
type boardRequest struct {
	start, upto int64 // the changes that this process knows: see cooldowns
	ops         []boardOp
}

// maxOps limits how long one sync keeps Redis busy.
const maxOps = 256

// A boardOp is one operation of the script, with the arguments that any operation may need.
type boardOp struct {
	name     string // of the script's function
	key      string
	of       *cooldown
	cooldown // as sent to Redis
}

// args returns the arguments of the script. now is when it is called.
func (q *boardRequest) args(now time.Duration) []any {
	args := []any{q.start, q.upto}
	for i := range q.ops {
		o := &q.ops[i]
		args = append(args, o.name, o.key, roundedUp(max(0, o.until-now)), roundedUp(o.every),
			max(0, now-o.posted).Microseconds(), o.round, o.replaced)
	}
	return args
}

// roundedUp returns d in µs, rounded up.
func roundedUp(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// A boardReply is what Redis returns in one sync.
type boardReply struct {
	start, last int64   // when Redis started to number changes, and the number of the last one
	upto        int64   // the number of the last one in changes
	refusal     string  // why no message could be published
	answers     []int64 // one for each operation
	changes     []boardChange
}

// A boardChange is one cool-down that has changed.
type boardChange struct {
	key      string
	ends     int64         // by Redis' clock
	wait     time.Duration // from its post, or its last probe, to its end
	ago      time.Duration // time since that post or probe
	every    time.Duration
	round    int64
	slots    int64
	replaced int64
}

// left returns how long the cool-down lasts; it is negative if it is over.
func (n *boardChange) left() time.Duration { return n.wait - n.ago }

func (n *boardChange) valid() bool {
	return n.ends > 0 && n.round > 0 && n.wait <= longestCoolDown && n.every <= longestCoolDown && n.slots <= maxSlots
}

// parseBoardReply reads the reply to a request with so many operations.
func parseBoardReply(value any, ops int) (boardReply, error) {
	var list replyReader
	list.rest, _ = value.([]any)
	span := func() time.Duration { return time.Duration(list.natural()) * time.Microsecond }
	r := boardReply{start: list.natural(), last: list.natural(), upto: list.natural(), refusal: list.text()}
	for range ops {
		answer := list.number()
		list.failed = list.failed || answer < noSlot || answer >= maxSlots
		r.answers = append(r.answers, answer)
	}
	for len(list.rest) > 0 && !list.failed {
		n := boardChange{key: list.text(), ends: list.natural(), wait: span(), ago: span(), every: span(),
			round: list.natural(), slots: list.natural(), replaced: list.natural()}
		list.failed = list.failed || !n.valid()
		r.changes = append(r.changes, n)
	}
	if list.failed {
		return boardReply{}, errReply
	}
	return r, nil
}
