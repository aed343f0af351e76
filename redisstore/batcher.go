package redisstore

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch is the largest batch. In a larger one, calls would wait longer than sharing a
	// round trip saves, and so would other clients of the same Redis.
	maxBatch = 128

	// batchEvery is the round trip time for which one more batch in flight is worth it.
	batchEvery = 200 * time.Microsecond

	// maxInFlight is how many batches may be in flight, however long a round trip takes.
	maxInFlight = 16

	// worthBatching is how many waiting calls are sent as one more batch even on a short round
	// trip: the server then works on one batch while this process handles the answers to
	// another.
	worthBatching = 8
)

// A batcher sends concurrent calls to one server in batches. A call is sent at once if there are
// fewer batches in flight than the round trip time is worth. Otherwise it waits, first come, first
// served, until a batch is answered or so many calls wait that one more batch is sent.
//
// Set send before use. It is safe for concurrent use.
type batcher[T any] struct {
	// send sends a batch and blocks until the server has answered. It stores each answer in its
	// call. It returns an error, for all calls, if there was no answer. It must not block forever.
	send func(ctx context.Context, batch []T) error

	mu       sync.Mutex // guards what follows
	queue    []*waiter[T]
	inFlight int           // batches
	calls    int           // calls in those batches
	rtt      time.Duration // about the shortest recent round trip; 0 before the first
	most     int           // connections that batches may use; 0 if unknown
}

// A waiter is a call that waits for its answer.
type waiter[T any] struct {
	ctx    context.Context
	call   T
	answer chan error // with a capacity of one
}

// do sends call, in a batch, and blocks until it is answered. It returns nil or the error of the
// batch. If ctx ends first, it returns ctx's error: a call that still waits is never sent, and
// the answer to one in flight is ignored.
func (b *batcher[T]) do(ctx context.Context, call T) error {
	w := &waiter[T]{ctx: ctx, call: call, answer: make(chan error, 1)}
	b.mu.Lock()
	b.queue = append(b.queue, w)
	if b.mayFlushLocked() {
		b.inFlight++
		go b.flush()
	}
	b.mu.Unlock()
	select {
	case err := <-w.answer:
		return err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return ctx.Err()
}

// doInline runs send in the caller's goroutine, if no other call waits or is in flight. ok
// reports whether it ran.
func (b *batcher[T]) doInline(send func() error) (ok bool, err error) {
	b.mu.Lock()
	if b.inFlight > 0 || len(b.queue) > 0 {
		b.mu.Unlock()
		return false, nil
	}
	b.inFlight, b.calls = 1, 1
	b.mu.Unlock()
	began := time.Now()
	defer func() { // runs after runtime.Goexit too
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answeredLocked(1, time.Since(began), err)
		if len(b.queue) > 0 {
			go b.flush()
		} else {
			b.inFlight--
		}
	}()
	err = send()
	return true, err
}

// flush sends batches until there is nothing to send. The caller has already counted its first
// batch as in flight, so that no other flush starts meanwhile.
func (b *batcher[T]) flush() {
	for {
		b.mu.Lock()
		b.inFlight--
		if !b.mayFlushLocked() {
			b.mu.Unlock()
			return
		}
		b.inFlight++
		n := min(len(b.queue), maxBatch)
		waiters := slices.Clone(b.queue[:n])
		b.queue = slices.Delete(b.queue, 0, n)
		b.calls += n
		b.mu.Unlock()

		calls := make([]T, n)
		for i, w := range waiters {
			calls[i] = w.call
		}
		began := time.Now()
		err := b.send(context.WithoutCancel(waiters[0].ctx), calls)
		took := time.Since(began)
		for _, w := range waiters {
			w.answer <- err
		}
		b.mu.Lock()
		b.answeredLocked(n, took, err)
		b.mu.Unlock()
		runtime.Gosched() // so that callers just answered can queue their next calls
	}
}

// mayFlushLocked reports whether to send another batch now: if fewer are in flight than the round
// trip time is worth, or one more than that if as many calls wait as half of those in flight.
func (b *batcher[T]) mayFlushLocked() bool {
	waiting, may := len(b.queue), b.maxInFlightLocked()
	if waiting >= max(worthBatching, b.calls/2) && may < cmp.Or(b.most, maxInFlight+1) {
		may++
	}
	return waiting > 0 && b.inFlight < may
}

// answeredLocked records that a batch of n calls was answered after took. The shortest round trip
// shows how far away the server is: longer ones mean that the server or this process is busy. To
// notice a server that has moved away, rtt grows slowly towards longer ones.
func (b *batcher[T]) answeredLocked(n int, took time.Duration, err error) {
	b.calls -= n
	switch {
	case err != nil:
	case took < b.rtt || b.rtt == 0:
		b.rtt = took
	default:
		b.rtt += (took - b.rtt) / 1024
	}
}

// measured records a round trip outside of any batch, and returns how many batches may be in flight.
func (b *batcher[T]) measured(rtt time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answeredLocked(0, rtt, nil)
	return b.maxInFlightLocked()
}

// maxInFlightLocked returns how many batches may be in flight, for the current round trip time.
func (b *batcher[T]) maxInFlightLocked() int {
	return min(1+int(b.rtt/batchEvery), maxInFlight, cmp.Or(b.most, maxInFlight))
}
