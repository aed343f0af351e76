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
	// pollEvery is between syncs that nothing else has caused, for lost messages.
	pollEvery = time.Second
	// searchEvery is the same while there is no subscription. It is also the pause
	// after a second failure in a row, which doubles with each one up to pollEvery.
	searchEvery = 100 * time.Millisecond
	// againAfter is the pause after a first failure, which may have been an
	// accident, and before a sync that follows from the one before.
	againAfter = 5 * time.Millisecond
)

var errClosed = errors.New("redisstore: Board is closed")

// A syncer makes what a process knows and what Redis knows the same. One goroutine makes
// one sync after the other: a request from the process's cool-downs, a call of the script,
// and what it replies goes into the cool-downs.
//
// A syncer does not refer to its Board, which would keep that from becoming garbage.
type syncer struct {
	client  *client
	keys    []string
	timeout time.Duration

	ctx        context.Context // over when the Board is closed
	close      context.CancelFunc
	wake       chan struct{} // has room for one
	subscribed atomic.Bool   // to the changes that others make
	abandoned  atomic.Bool   // the Board is garbage
	trouble    trouble

	mu    sync.Mutex // guards what follows
	known cooldowns
	next  *pendingSync
	lost  error // why the last sync failed, or nil
}

// A pendingSync is one that has not begun, or is not over.
type pendingSync struct {
	done    chan struct{} // closed when it is over
	err     error         // what came of it
	awaited bool          // somebody will return err
}

func newSyncer(b *Board) *syncer {
	s := &syncer{client: newClient(b.Client, b.timeout()), keys: b.keys(), timeout: b.timeout()}
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
		started: func() { s.subscribed.Store(true); s.wakeUp() }, // it may have missed some
		message: func(string) { s.wakeUp() },
		stopped: func() { s.subscribed.Store(false); s.wakeUp() }, // for shorter pauses
		failed:  s.trouble.put,
	}
	go changes.run(s.ctx)
}

// wakeUp ends the pause before the next sync.
func (s *syncer) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // the next sync is yet to begin, and does for this as well
	}
}

// flush blocks until a sync is over that began after the call, and returns its error. It
// takes no longer than the timeout, nor than ctx, and no time while Redis is lost.
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
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	select {
	case <-next.done:
		return next.err
	case <-within.Done():
		return fmt.Errorf("redisstore: not known to Redis yet: %w", within.Err())
	case <-s.ctx.Done():
		return errClosed
	}
}

// run syncs until the Board is closed, or garbage.
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

// pause blocks until the next sync is due. After a failure nothing makes it due sooner.
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
			err = fmt.Errorf("redisstore: other processes see it late: %.200s", r.refusal)
		}
	}
	if s.ctx.Err() != nil {
		err = errClosed
	}
	if this.err = err; err != nil && err != errClosed && !this.awaited {
		s.trouble.put(err)
	}
	close(this.done)
	return s.lost == nil
}

// A boardRequest is what a process brings Redis in one sync.
type boardRequest struct {
	begun, upto int64 // the changes that it knows
	ops         []boardOp
}

// maxOps bounds the time that one sync takes of Redis.
const maxOps = 256

// A boardOp is one operation of the script, with all that any of them needs.
type boardOp struct {
	name     string // of the script's function
	key      string
	of       *cooldown
	cooldown // what Redis is to know of it
}

// args are those of the script, when it is asked at now.
func (q *boardRequest) args(now time.Duration) []any {
	args := []any{q.begun, q.upto}
	for i := range q.ops {
		o := &q.ops[i]
		args = append(args, o.name, o.key, roundedUp(max(0, o.until-now)), roundedUp(o.every),
			max(0, now-o.posted).Microseconds(), o.round, o.replaced)
	}
	return args
}

// roundedUp is d in µs.
func roundedUp(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// A boardReply is what Redis has for a process.
type boardReply struct {
	begun, last int64   // when it began to number changes, and the number of the last
	upto        int64   // that of the last in changes, if there are more
	refusal     string  // why nothing could be published
	answers     []int64 // to the operations
	changes     []boardChange
}

// A boardChange is a cool-down that has changed.
type boardChange struct {
	key      string
	ends     int64         // by Redis' clock
	wait     time.Duration // from when it was posted, or last probed, to its end
	ago      time.Duration // when that was
	every    time.Duration
	round    int64
	slots    int64
	replaced int64
}

// left is how long the cool-down lasts, negative if it is over.
func (n *boardChange) left() time.Duration { return n.wait - n.ago }

func (n *boardChange) valid() bool {
	return n.ends > 0 && n.round > 0 && n.wait <= longestCoolDown && n.every <= longestCoolDown && n.slots <= maxSlots
}

// parseBoardReply reads the reply to so many operations.
func parseBoardReply(value any, ops int) (boardReply, error) {
	var list replyReader
	list.rest, _ = value.([]any)
	span := func() time.Duration { return time.Duration(list.natural()) * time.Microsecond }
	r := boardReply{begun: list.natural(), last: list.natural(), upto: list.natural(), refusal: list.text()}
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

// trouble is an error that is reported once. Its zero value is none.
type trouble struct{ atomic.Pointer[error] }

func (t *trouble) put(err error) { t.Store(&err) }

func (t *trouble) take() error {
	if t.Load() == nil {
		return nil
	}
	if err := t.Swap(nil); err != nil {
		return *err
	}
	return nil
}
