package pace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
)

// ErrQueueFull is the error of a request that a Queue had no room for.
var ErrQueueFull = errors.New("pace: the queue is full")

const defaultMaxQueued = 1000

// A Queue puts requests in order before they go to another Pacer, for batches
// that are sent by more workers, or for more customers, than a server's limit
// has room for. Put it where the Transport has its Pacer, around the Pacer that
// keeps the limit:
//
//	Pacer: &pace.Queue{Pacer: pace.PerHost(10, 1), Max: 100}
//
// The requests of each host are in a line of their own. Its first one asks
// Pacer, and only when that has let it go the next one does. So a request that
// comes with a higher priority is overtaken by one other at most. Within a
// priority, the requests of each key are first in, first out, and keys take
// turns: each has as many units, whatever the others send. Higher priorities
// can hold lower ones up for ever.
//
// It does not send anything: the goroutine that calls http.Client.Do is the
// job, and waits. Have no more of them than Max, and set the RetryPolicy's
// MaxWait and MaxElapsed to what the batch may take, or those in line for longer
// are sent away with a *heed.OverdueError. An attempt that is a retry stands in
// line again.
//
// A Queue is a heed.BoundedPacer. Its fields must not be changed, nor the Queue
// be copied, after first use. It may be used by any number of goroutines, and
// shared by Transports. The zero Queue lets all requests go at once: its Pacer
// is missing.
type Queue struct {
	// Pacer keeps the limit. If nil, there is none.
	Pacer heed.Pacer

	// Max is how many requests may wait, of all hosts together. One more is
	// refused at once, with ErrQueueFull. If zero, 1,000.
	Max int

	// Priority is how urgent a request is: the highest goes first. If nil, what
	// WithPriority has put into its context, or else 0.
	Priority func(*http.Request) int

	// Key is among whom turns are shared fairly, as the customer for whom a
	// request is. If nil, or if all have the same, first in, first out.
	Key func(*http.Request) string

	// Cost is how many units a request takes of its key's turns. If nil, or less
	// than 1, 1. To have the limit count it as well, set that Pacer's Cost; see
	// CostHeader.
	Cost func(*http.Request) int64

	// Progress is told whenever a number in it changes, one call at a time and
	// in order. It must be quick, and not use the Queue. If nil, nobody is.
	Progress func(Progress)

	hosts hostkey.Cache

	mu    sync.Mutex            // guards what follows
	lanes map[string]*queueLane // by host; those in which nobody waits are forgotten
	state Progress
}

// A Progress is how many requests a Queue has.
type Progress struct {
	Waiting int   // in line
	Sent    int   // under way: let go, and not observed yet
	Done    int64 // answered, or failed, since the beginning
	Refused int64 // of Done, with 429 or 503
}

var _ heed.BoundedPacer = (*Queue)(nil)

// A queueLane is where the requests of a host wait.
type queueLane struct {
	schedule
	first *queued // who asks the Pacer; nil if nobody waits
}

type priorityKey struct{}

// WithPriority returns a context whose requests have that priority in a Queue.
func WithPriority(ctx context.Context, priority int) context.Context {
	return context.WithValue(ctx, priorityKey{}, priority)
}

// Wait blocks until req may be sent, for as long as its context allows.
func (q *Queue) Wait(req *http.Request) error { return q.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from now, it
// returns a *heed.OverdueError: when that time has passed in line, since it is
// not known before; at once, if Pacer knows, or if most is zero or negative.
func (q *Queue) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	start := time.Now()
	host := q.hosts.Key(req.URL.Scheme, req.URL.Host)
	l, w, err := q.enter(host, req)
	if err != nil {
		return err
	}
	err = w.wait(ctx, host, most)
	if err == nil && q.Pacer != nil {
		err = waitAtMost(q.Pacer, req, most-time.Since(start))
	}
	q.leave(host, l, w, err == nil)
	return err
}

// enter puts req in line.
func (q *Queue) enter(host string, req *http.Request) (*queueLane, *queued, error) {
	w := &queued{priority: q.priority(req), units: 1, turn: make(chan struct{})}
	if q.Key != nil {
		w.key = q.Key(req)
	}
	if q.Cost != nil {
		w.units = q.Cost(req)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.Max < 0:
		return nil, nil, fmt.Errorf("pace: Queue.Max is %d: it must not be negative", q.Max)
	case q.state.Waiting >= q.max():
		return nil, nil, ErrQueueFull
	}
	if q.lanes == nil {
		q.lanes = make(map[string]*queueLane)
	}
	l := q.lanes[host]
	if l == nil {
		l = &queueLane{}
		q.lanes[host] = l
	}
	l.push(w)
	l.advance()
	q.state.Waiting++
	q.tellLocked()
	return l, w, nil
}

// advance gives the first in line its turn, unless another one has it.
func (l *queueLane) advance() {
	if l.first == nil {
		if l.first = l.pop(); l.first != nil {
			close(l.first.turn)
		}
	}
}

// wait blocks until w's turn to ask the Pacer.
func (w *queued) wait(ctx context.Context, host string, most time.Duration) error {
	select {
	case <-w.turn:
		return nil
	default:
	}
	b := boundOf(ctx, most, time.Now())
	if most <= 0 {
		return b.overdue(host, 0, time.Now())
	}
	timer := time.NewTimer(min(most, forever))
	defer timer.Stop()
	select {
	case <-w.turn:
		return nil
	case <-timer.C:
		return &heed.OverdueError{Key: host, Wait: most, Left: most}
	case <-ctx.Done():
		return ended(ctx)
	}
}

// leave takes w out of line, sent or not, and gives the next one its turn.
func (q *Queue) leave(host string, l *queueLane, w *queued, sent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.first == w {
		l.first = nil
		l.advance()
	} else {
		l.remove(w)
	}
	if l.first == nil {
		delete(q.lanes, host)
	}
	q.state.Waiting--
	if sent {
		q.state.Sent++
	}
	q.tellLocked()
}

// Observe passes a on to Pacer.
func (q *Queue) Observe(a heed.Attempt) {
	if q.Pacer != nil {
		q.Pacer.Observe(a)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Sent--
	if a.Err != heed.ErrNotSent {
		q.state.Done++
		if a.Response != nil && refusal(a) {
			q.state.Refused++
		}
	}
	q.tellLocked()
}

func (q *Queue) tellLocked() {
	if q.Progress != nil {
		q.Progress(q.state)
	}
}

func (q *Queue) priority(req *http.Request) int {
	if q.Priority != nil {
		return q.Priority(req)
	}
	priority, _ := req.Context().Value(priorityKey{}).(int)
	return priority
}

func (q *Queue) max() int {
	if q.Max == 0 {
		return defaultMaxQueued
	}
	return q.Max
}
