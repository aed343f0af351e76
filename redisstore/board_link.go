package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link makes what a process knows and what Redis knows the same, by trips: each
// takes a dispatch to Redis and comes back with news. A trip is made when a post,
// a replacement, a probe or a seat is wanted of it, when a message says that something has
// changed, and when the timer says that nothing was heard for a while. There is
// one at a time; those that are asked for meanwhile are one trip.
//
// A link does not know its Board, so as not to keep it alive.
type link struct {
	client  redis.UniversalClient
	keys    []string
	timeout time.Duration

	known     cooldowns
	calls     caller
	trouble   trouble
	listening atomic.Bool     // to messages
	dropped   atomic.Bool     // the Board is garbage
	ctx       context.Context // over when the link is closed
	end       context.CancelFunc

	mu       sync.Mutex // guards what follows
	timer    *time.Timer
	next     *trip // that was asked for, and has not begun
	busy     bool  // there is a goroutine that makes trips
	failures int   // in a row, up to now
	lost     error // why the last trip got no answer, if so
}

// A trip is over when done is closed.
type trip struct {
	done    chan struct{}
	err     error
	awaited bool // by somebody who will be told err
}

const (
	// pollEvery heals what messages have not brought.
	pollEvery = time.Second
	// searchEvery takes their place while there are none. It is also the pause
	// after a second failure in a row, which doubles with each one up to pollEvery.
	searchEvery = 100 * time.Millisecond
	// againAfter is the pause after a first failure, which may have been an
	// accident, and before a trip that follows from the one before.
	againAfter = 5 * time.Millisecond
)

func newLink(b *Board) *link {
	l := &link{client: b.Client, keys: b.keys(), timeout: b.timeout()}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.mu.Lock() // tick may come as soon as there is a timer
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(pollEvery, l.tick)
	return l
}

func (l *link) start() {
	l.kick()
	if !isNil(l.client) {
		s := &subscription{client: l.client, channel: l.keys[0], began: l.began, heard: l.heard, ended: l.ended}
		go s.run(l.ctx)
	}
}

// began, heard and ended are what becomes of the subscription.
func (l *link) began() {
	l.listening.Store(true)
	l.kick() // what was said before
}

func (l *link) heard(string) { l.kick() }

func (l *link) ended(err error) {
	if l.listening.Swap(false) {
		l.kick() // which makes the timer quick
	}
	if err != nil && l.ctx.Err() == nil {
		l.trouble.put(fmt.Errorf("redisstore: cannot subscribe: %w", err))
	}
}

// tick is the timer's.
func (l *link) tick() {
	if l.dropped.Load() {
		l.close()
		return
	}
	l.kick()
}

// drop may be called in the place of close from anywhere: out of the synctest
// bubble that the timer belongs to, too. It works within a second.
func (l *link) drop() { l.dropped.Store(true) }

func (l *link) close() {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}

// read costs next to nothing as long as nothing cools down.
func (l *link) read(key string) (wait, every time.Duration) {
	if l.known.count.Load() == 0 {
		return 0, 0
	}
	wait, every, claim := l.known.read(key, monotonic())
	if claim {
		l.kick()
	}
	return wait, every
}

// deliver has a trip made, and waits for it.
func (l *link) deliver(ctx context.Context) error {
	t, err := l.ask(true)
	if err != nil {
		return err
	}
	timer := time.NewTimer(l.timeout)
	defer timer.Stop()
	select {
	case <-t.done:
		return t.err
	case <-timer.C:
		return fmt.Errorf("redisstore: no answer within %v: %w", l.timeout, context.DeadlineExceeded)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kick has a trip made, without waiting for it.
func (l *link) kick() { l.ask(false) }

// ask returns a trip that begins from now on. If it is awaited, it is an error
// that the last one got no answer: the next is the timer's.
func (l *link) ask(awaited bool) (*trip, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
		return nil, errClosed
	case awaited && l.lost != nil:
		return nil, fmt.Errorf("redisstore: not asked, because the last answer failed to come: %w", l.lost)
	case l.next == nil:
		l.next = &trip{done: make(chan struct{})}
	}
	l.next.awaited = l.next.awaited || awaited
	if !l.busy {
		l.busy = true
		go l.travel()
	}
	return l.next, nil
}

// travel makes trips for as long as they are asked for.
func (l *link) travel() {
	for t := l.begin(); t != nil; t = l.begin() {
		t.err = l.carry()
		if t.err != nil && !t.awaited {
			l.trouble.put(t.err)
		}
		close(t.done)
	}
}

// begin returns the next trip, or sets the timer if there is none.
func (l *link) begin() *trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.next
	l.next = nil
	if t == nil {
		l.busy = false
		if l.ctx.Err() == nil {
			l.timer.Reset(l.pauseLocked())
		}
	}
	return t
}

func (l *link) pauseLocked() time.Duration {
	switch {
	case l.failures > 1:
		return min(pollEvery, searchEvery<<min(l.failures-2, 4))
	case l.known.pending.Load():
		return againAfter
	case l.listening.Load():
		return pollEvery
	}
	return searchEvery
}

// carry takes a dispatch to Redis, and brings the news.
func (l *link) carry() error {
	asked := monotonic()
	d := l.known.dispatch(asked)
	reply, err := l.calls.run(context.Background(), l.client, l.timeout, boardScript, l.keys, d.args(asked)...)
	var n news
	if err == nil {
		n, err = parseNews(reply, &d)
	}
	l.judge(err)
	if err != nil {
		l.known.pending.Store(true)
		return err
	}
	l.known.learn(d, n, monotonic())
	if n.refusal != "" {
		return fmt.Errorf("redisstore: others hear of it late: %.200s", n.refusal)
	}
	return nil
}

func (l *link) judge(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures++; err == nil {
		l.failures = 0
	}
	if l.lost = err; unexecuted(err) {
		l.lost = nil
	}
}

// trouble is an error that is told once. Its zero value is none.
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

var errClosed = errors.New("redisstore: Board is closed")
