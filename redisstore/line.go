package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// fullTrain is how much one train carries. With more, those who come next
	// wait longer than the sharing saves, and so does everybody else's Redis.
	fullTrain = 128

	// worthWaiting is how long a trip may take before those who come meanwhile are
	// better off with one of their own than with a common one afterwards.
	worthWaiting = 200 * time.Microsecond

	// mostTrains is for how many there may be room.
	mostTrains = 16

	// goodCompany is how many share a train at least that leaves although there is no
	// room: fewer would cost more than it saves that nobody is idle meanwhile.
	goodCompany = 8
)

// A line has the calls that come for one server share round trips. Nobody waits
// for company: who finds room on the wire leaves at once, and who does not leaves
// with all who wait, first come, first served, as soon as a train has arrived and
// those it brought have had their turn, who often have another call to make.
//
// With a server nearby there is room for one train: another one would have to wait
// there instead of here. If the way is long, who had to wait for others to return
// would wait twice as long; so there is room for one more for each worthWaiting that
// the shortest trip takes.
//
// But where many come again and again, one train for all has the server wait for this
// process, and this process for the server, and each is woken whenever the other is
// done. So another train leaves though there is no room, as soon as those who wait are
// good company, and half as many as those away: while the server has to do with one,
// those whom the other brought make their next calls. And where halves are to take turns,
// no train carries more than half of all, if that is good company.
//
// It is safe for concurrent use.
type line[W any] struct {
	// timeout is how long a call may take, its wait included, and how long a train
	// may.
	timeout time.Duration

	// send has the calls of a batch executed, each at most once, and leaves in the
	// work of each what came of it. It returns an error if the server did not answer.
	send func(ctx context.Context, batch []*call[W]) error

	// silent is told the batch that was not answered, and that error or that it is
	// overdue, and returns what to tell those who wait: they are not sent. What send
	// writes it must not read.
	silent func(batch []*call[W], err error) error

	// halves is whether two halves of many are to take turns. A process that has several
	// servers is busy with the others anyway while one of them has something to do.
	halves bool

	pool sync.Pool // of trains

	mu       sync.Mutex // guards what follows
	queue    []*call[W] // those who wait, and some who have left
	away     []*train[W]
	riding   int           // calls of those away
	arriving int           // trains that may leave again
	crowd    int           // who waited or rode lately, at most
	trip     time.Duration // what a train takes at least
	timer    *time.Timer   // for those in queue and away; nil until there are any
	armed    bool
}

// A call is what somebody wants done. It is for use by one goroutine at a time.
type call[W any] struct {
	work     W
	weight   int  // how much it adds to a train
	stubborn bool // to be sent even to a server that is silent

	ctx  context.Context
	due  time.Duration // as monotonic counts
	done chan struct{} // is sent to when the line is done with it, unless it left

	outcome outcome // guarded by the line, like what follows
	fault   error   // if it failed
}

type outcome int

const (
	waiting outcome = iota
	served          // what came of it is in its work
	failed          // it was late, or was not sent
	gone            // its caller has left
)

func newCall[W any]() *call[W] { return &call[W]{done: make(chan struct{}, 1)} }

// do has c sent, and returns nil when its work is done, whatever came of it.
// It returns an error when ctx ends or c is late, or at once if the server is
// found silent before c was sent. A call that was still in the queue is then never
// sent, and one that was on the wire may be executed; neither can be used again.
//
// If c is straight it may be sent by the caller's own goroutine, and do returns no
// sooner than send. now is what monotonic says.
func (l *line[W]) do(ctx context.Context, c *call[W], now time.Duration, straight bool) error {
	c.ctx, c.due, c.outcome, c.fault = ctx, now+l.timeout, waiting, nil
	switch t := l.join(c); {
	case t == nil:
	case straight && len(t.calls) == 1 && t.calls[0] == c:
		if l.travel(t) && l.depart(t) {
			go l.set(t)
		}
	default:
		go l.set(t)
	}
	over := ctx.Done()
	if over == nil { // as it is often, and a select takes its time
		<-c.done
		return c.fault
	}
	select {
	case <-c.done:
		return c.fault
	case <-over:
		return l.leave(ctx, c)
	}
}

// join puts c in the queue. If there is room on the wire, it returns a train.
func (l *line[W]) join(c *call[W]) *train[W] {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, c)
	l.crowd = max(l.crowd, len(l.queue)+l.riding)
	l.armLocked(l.timeout)
	if !l.mayDepartLocked() {
		return nil
	}
	t, _ := l.pool.Get().(*train[W])
	if t == nil {
		t = new(train[W])
	}
	l.boardLocked(t)
	return t
}

// mayDepartLocked reports whether a train is to leave now. It need not if another one
// may in a moment, unless it is as full as any will be.
func (l *line[W]) mayDepartLocked() bool {
	away, room := len(l.away), l.roomLocked()
	switch {
	case l.arriving > 0:
		return away <= room && len(l.queue) >= l.seatsLocked()
	case away == room:
		return len(l.queue) >= max(goodCompany, l.riding/2)
	}
	return away < room
}

// seatsLocked is how many ride in one train at most.
func (l *line[W]) seatsLocked() int {
	if half := (l.crowd + 1) / 2; l.halves && half >= goodCompany {
		return min(half, fullTrain)
	}
	return fullTrain
}

// roomLocked is how many trains may be on the wire now.
func (l *line[W]) roomLocked() int { return min(1+int(l.trip/worthWaiting), mostTrains) }

// boardLocked has those who are first in the queue board t, and reports whether
// there are any.
func (l *line[W]) boardLocked(t *train[W]) bool {
	n, weight := 0, 0
	for ; n < len(l.queue); n++ {
		c := l.queue[n]
		if c.outcome != waiting {
			continue
		}
		if weight += c.weight; len(t.calls) > 0 && (weight > fullTrain || len(t.calls) == l.seatsLocked()) {
			break
		}
		t.calls = append(t.calls, c)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	if len(t.calls) == 0 {
		return false
	}
	t.departed = monotonic()
	l.away = append(l.away, t)
	l.riding += len(t.calls)
	return true
}

// arrive makes room for the next train. It reports whether t was not given up.
func (l *line[W]) arrive(t *train[W], err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.lost {
		return false
	}
	l.removeLocked(t)
	l.arriving++
	for _, c := range t.calls {
		if c.outcome == waiting {
			c.outcome = served
		}
	}
	if err != nil {
		l.refuseLocked(t, err)
	} else {
		l.timeLocked(monotonic() - t.departed)
	}
	t.calls, t.arrived = t.arrived[:0], t.calls
	return true
}

// depart has those who wait board t, which has arrived, and if they are more than it
// carries as many others as may leave. It reports whether t leaves.
func (l *line[W]) depart(t *train[W]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arriving--
	if !l.mayDepartLocked() || !l.boardLocked(t) {
		l.pool.Put(t)
		return false
	}
	for len(l.queue) > 0 && l.mayDepartLocked() {
		if next := new(train[W]); l.boardLocked(next) {
			go l.set(next)
		}
	}
	return true
}

func (l *line[W]) removeLocked(t *train[W]) {
	i := slices.Index(l.away, t)
	l.away = slices.Delete(l.away, i, i+1)
	l.riding -= len(t.calls)
	l.crowd -= (l.crowd + 31) / 32 // or else it would be of long ago
}

// timeLocked takes note of how long a train took. The shortest tells how long the
// way is: what others take longer is work, here or there, of which smaller trains
// would make more. If the way has become longer, that is seen after a while.
func (l *line[W]) timeLocked(took time.Duration) {
	if took < l.trip || l.trip == 0 {
		l.trip = took
	} else {
		l.trip += (took - l.trip) / 1024
	}
}

// refuseLocked sends nobody of the queue to a server that was silent to t, but those
// who are stubborn.
func (l *line[W]) refuseLocked(t *train[W], cause error) {
	refusal := l.silent(t.calls, cause)
	l.queue = slices.DeleteFunc(l.queue, func(c *call[W]) bool {
		if !c.stubborn {
			c.failLocked(refusal)
		}
		return c.outcome != waiting
	})
}

func (c *call[W]) failLocked(fault error) {
	if c.outcome == waiting {
		c.outcome, c.fault = failed, fault
		c.done <- struct{}{}
	}
}

// leave withdraws c, or leaves it behind, unless it is done.
func (l *line[W]) leave(ctx context.Context, c *call[W]) error {
	l.mu.Lock()
	if c.outcome == waiting {
		c.outcome = gone
		l.mu.Unlock()
		return ctx.Err()
	}
	l.mu.Unlock()
	<-c.done
	return c.fault
}

// armLocked sees to it that the line is looked after in time for those who come
// from now on.
func (l *line[W]) armLocked(in time.Duration) {
	if l.armed {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(in, l.tick)
	} else {
		l.timer.Reset(in)
	}
}

// tick fails the calls, and gives up the trains, whose time is over.
func (l *line[W]) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := monotonic()
	late := fmt.Errorf("redisstore: no answer within %v: %w", l.timeout, context.DeadlineExceeded)
	next := failLateLocked(l.queue, now, late)
	for _, t := range slices.Clone(l.away) {
		next = min(next, failLateLocked(t.calls, now, late), l.giveUpLocked(t, now, late))
	}
	l.armed = false
	if next != never {
		l.armLocked(next - now)
	}
}

// never is later than every call.
const never time.Duration = 1<<63 - 1

// failLateLocked returns when the next of calls will be late.
func failLateLocked[W any](calls []*call[W], now time.Duration, late error) time.Duration {
	for _, c := range calls {
		if c.due > now {
			return c.due
		}
		c.failLocked(late)
	}
	return never
}

// giveUpLocked returns when t will be late, if it is not. What is late keeps its
// calls for itself, and its place is free.
func (l *line[W]) giveUpLocked(t *train[W], now time.Duration, late error) time.Duration {
	if due := t.departed + l.timeout; due > now {
		return due
	}
	t.lost = true
	l.removeLocked(t)
	l.refuseLocked(t, late)
	if next := new(train[W]); l.boardLocked(next) {
		go l.serve(next)
	}
	return never
}
