package redisstore

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch is the weight of the largest batch. In a larger one, calls would wait longer than sharing
	// a round trip saves, perhaps longer than their Timeout, and so would other clients of the same Redis.
	maxBatch = 128

	// batchEvery is the round trip time for which one more batch in flight is worth it.
	batchEvery = 200 * time.Microsecond

	// maxInFlight is how many batches may be in flight, however long a round trip takes.
	maxInFlight = 16

	// worthBatching is how many waiting ops are sent as one more batch even on a short round
	// trip: the server then works on one batch while this process handles the answers to
	// another.
	worthBatching = 8
)

// A batcher sends ops of concurrent calls to one server in batches. An op is sent at once if there are fewer
// batches in flight than the round trip time is worth. Otherwise it waits, first come, first served,
// until a batch is answered or so many wait that one more batch is sent.
//
// Set send before use. It is safe for concurrent use.
type batcher struct {
	// send sends a batch and blocks until the server has answered. It sets the answer or err of
	// each op. It returns an error if there was no answer. It must not block forever.
	send func(ctx context.Context, batch []*op) error

	mu       sync.Mutex // guards what follows
	queue    []*op
	inFlight int           // batches
	sent     int           // ops in those batches
	rtt      time.Duration // about the shortest recent round trip; 0 before the first
	most     int           // connections that batches may use; 0 if unknown
}

// do sends o, in a batch, and blocks until it is answered. If ctx or timeout ends first, it returns ctx's
// error or context.DeadlineExceeded: if o still waits it is never sent, and if it is in flight its
// answer is ignored, so o must not be used any more. If alone is set and nothing else is in flight, o
// is sent in the caller's goroutine, which saves two goroutine switches; then send must heed ctx.
func (b *batcher) do(ctx context.Context, o *op, timeout time.Duration, alone bool) error {
	b.mu.Lock()
	if alone && b.inFlight == 0 && len(b.queue) == 0 {
		b.inFlight++
		b.sent++
		b.mu.Unlock()
		b.flight(ctx, []*op{o})
		return o.err
	}
	o.done = make(chan struct{})
	b.queue = append(b.queue, o)
	if b.mayFlushLocked() {
		b.inFlight++
		go b.flush()
	}
	b.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	err := context.DeadlineExceeded
	select {
	case <-o.done:
		return o.err
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, o); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return err
}

var errGoexit = errors.New("redisstore: a hook of the Redis client ended its goroutine")

// flush sends what waits as one batch. The caller has already counted it as in flight, so that no other
// flush starts meanwhile.
func (b *batcher) flush() {
	runtime.Gosched() // so that callers just answered can queue their next calls
	b.mu.Lock()
	b.inFlight--
	if !b.mayFlushLocked() {
		b.mu.Unlock()
		return
	}
	n, weight := 1, b.queue[0].weight()
	for ; n < len(b.queue) && weight+b.queue[n].weight() <= maxBatch; n++ {
		weight += b.queue[n].weight()
	}
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	b.inFlight++
	b.sent += n
	b.mu.Unlock()
	b.flight(context.Background(), batch)
}

// flight sends a batch that is counted as in flight, and wakes its callers. Then another goroutine sends what
// waits.
func (b *batcher) flight(ctx context.Context, batch []*op) {
	began, err := time.Now(), errGoexit
	defer func() { // runs after runtime.Goexit too
		for _, o := range batch {
			if err != nil {
				o.err = err
			}
			if o.done != nil {
				close(o.done)
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answeredLocked(len(batch), time.Since(began), err)
		if len(b.queue) > 0 {
			go b.flush()
		} else {
			b.inFlight--
		}
	}()
	err = b.send(ctx, batch)
}

// mayFlushLocked reports whether to send another batch now: if fewer are in flight than the round
// trip time is worth, or one more than that if as many ops wait as half of those in flight.
func (b *batcher) mayFlushLocked() bool {
	waiting, may := len(b.queue), b.maxInFlightLocked()
	if waiting >= max(worthBatching, b.sent/2) && may < cmp.Or(b.most, maxInFlight+1) {
		may++
	}
	return waiting > 0 && b.inFlight < may
}

// answeredLocked records that a batch of n ops was answered after took. The shortest round trip
// shows how far away the server is: longer ones mean that the server or this process is busy. To
// notice a server that has moved away, rtt grows slowly towards longer ones.
func (b *batcher) answeredLocked(n int, took time.Duration, err error) {
	b.sent -= n
	switch {
	case err != nil:
	case took < b.rtt || b.rtt == 0:
		b.rtt = took
	default:
		b.rtt += (took - b.rtt) / 1024
	}
}

// measured records a round trip outside of any batch, and returns how many batches may be in flight.
func (b *batcher) measured(rtt time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answeredLocked(0, rtt, nil)
	return b.maxInFlightLocked()
}

// maxInFlightLocked returns how many batches may be in flight, for the current round trip time.
func (b *batcher) maxInFlightLocked() int {
	return min(1+int(b.rtt/batchEvery), maxInFlight, cmp.Or(b.most, maxInFlight))
}
