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
	// maxBatch is how many calls one batch has at most. With more, each waits longer than the
	// sharing saves, and so do other users of the same Redis.
	maxBatch = 128

	// batchEvery is how long a round trip may take before it is better to send another batch
	// than to wait for the answer to the one before.
	batchEvery = 200 * time.Microsecond

	// maxInFlight is how many batches may be in flight however long a round trip takes.
	maxInFlight = 16

	// worthBatching is how many waiting calls are a batch that need not wait, even if a round
	// trip is short: the server is then busy with one batch while this process handles the
	// answers to the other.
	worthBatching = 8
)

// A batcher sends calls that are made at the same time to one server, in batches. A call is sent
// at once if as many batches as the round trip is worth are not in flight yet. Others wait,
// first come, first served, until a batch is answered, or so many wait that one more is sent.
//
// Its zero value needs send. It is safe for concurrent use.
type batcher[T any] struct {
	// send sends a batch and blocks until it is answered. The answer to a call is left in the
	// call. An error is that of all: there was no answer. It must not block for ever.
	send func(ctx context.Context, batch []T) error

	mu       sync.Mutex // guards what follows
	queue    []*waiter[T]
	inFlight int           // batches
	calls    int           // in them
	rtt      time.Duration // about the shortest round trip of late; 0 before the first
	most     int           // connections that batches are sent by, if that is known
}

// A waiter waits for the answer to a call.
type waiter[T any] struct {
	ctx    context.Context
	call   T
	answer chan error // with room for one
}

// do blocks until call was sent and answered, and returns nil, or the error of its batch. If ctx
// ends first, it returns ctx's error: a call that still waits is then never sent, and one in
// flight is left to itself.
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

// doInline calls send, which is to send one call, in the goroutine of its caller. It does so only if
// no other call waits or is in flight; ok reports whether it did.
func (b *batcher[T]) doInline(send func() error) (ok bool, err error) {
	b.mu.Lock()
	if b.inFlight > 0 || len(b.queue) > 0 {
		b.mu.Unlock()
		return false, nil
	}
	b.inFlight, b.calls = 1, 1
	b.mu.Unlock()
	began := time.Now()
	defer func() { // also after runtime.Goexit
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

// flush sends one batch after the other until none is to be sent. Its caller has counted it as one
// in flight, so that no other is started meanwhile.
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
		runtime.Gosched() // so that callers that were answered can add their next calls
	}
}

// mayFlushLocked reports whether another batch is to be sent now: there is room for one, or there
// would be for one less and as many wait as half of those in flight.
func (b *batcher[T]) mayFlushLocked() bool {
	waiting, may := len(b.queue), b.maxInFlightLocked()
	if waiting >= max(worthBatching, b.calls/2) && may < cmp.Or(b.most, maxInFlight+1) {
		may++
	}
	return waiting > 0 && b.inFlight < may
}

// answeredLocked takes note that a batch of n calls was answered after took. The shortest round
// trip tells how far away the server is; others are longer because it or this process is busy. The
// rtt grows slowly towards longer ones, so that a server that has moved is noticed.
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

// measured takes note of a round trip that was no batch's, and returns how many batches may be in
// flight.
func (b *batcher[T]) measured(rtt time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answeredLocked(0, rtt, nil)
	return b.maxInFlightLocked()
}

// maxInFlightLocked is how many batches may be in flight to a server that is so far away.
func (b *batcher[T]) maxInFlightLocked() int {
	return min(1+int(b.rtt/batchEvery), maxInFlight, cmp.Or(b.most, maxInFlight))
}
