package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// probeAfter is the least time from the end of a Probe to the next.
	probeAfter = 100 * time.Millisecond

	// probeBeside is how long after a Probe another one is started beside it: the connection of
	// the first may be dead, and the next may have an answer at once.
	probeBeside = 500 * time.Millisecond

	maxProbes = 16 // under way
)

// A breaker is open until a Probe has succeeded, and again after a call without an answer. It
// has no goroutine but that of a Probe, which a call starts.
type breaker struct {
	ready atomic.Bool

	mu      sync.Mutex    // guards what follows
	cause   error         // why calls are not made; nil if nobody knows yet
	probes  int           // under way
	next    time.Time     // when there may be another Probe
	changed chan struct{} // closed when what is known changes; nil if nobody waits for that
}

// Ready returns nil if calls may be made: c has no Probe, or the last Probe or call was
// answered. While the first Probe is under way, it blocks until that ends, or returns ctx's error.
// Otherwise the breaker is open: it returns at once why, and starts another Probe in the
// background, at most ten times a second.
func (c *Caller) Ready(ctx context.Context) error {
	for {
		changed, cause := c.state()
		switch {
		case changed == nil:
			return nil
		case cause != nil:
			return fmt.Errorf("%s is not called, because it did not answer: %w", c.Name, cause)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitReady is Ready, but while the breaker is open it blocks until a Probe ends, or ctx.
func (c *Caller) WaitReady(ctx context.Context) error {
	for {
		changed, _ := c.state()
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
			return c.Ready(ctx)
		case <-time.After(probeAfter): // when there may be another Probe
		case <-ctx.Done():
			return c.Ready(ctx)
		}
	}
}

// state returns nil and nil if calls may be made. Otherwise it returns a channel that is closed when
// that changes, and why not, if that is known, and starts a Probe if none is under way.
func (c *Caller) state() (changed <-chan struct{}, cause error) {
	b := &c.breaker
	if c.Probe == nil || b.ready.Load() {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready.Load() {
		return nil, nil
	}
	c.probeLocked()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed, b.cause
}

// Answers closes the breaker: the caller knows that c answers.
func (c *Caller) Answers() { c.breaker.set(nil) }

// Fails gives the reason why a Probe under way will fail, so that nobody has to wait for its end. It
// does nothing if calls may be made.
func (c *Caller) Fails(cause error) {
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	if c.Probe != nil && !c.breaker.ready.Load() {
		c.breaker.setLocked(cause)
	}
}

// failed opens the breaker because a call ended with err, unless that is an answer, and starts a
// Probe.
func (c *Caller) failed(err error) {
	if c.Probe == nil || c.Answered != nil && c.Answered(err) {
		return
	}
	c.breaker.set(err)
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	if c.breaker.probes == 0 {
		c.breaker.next = time.Time{} // it may have been an accident
	}
	c.probeLocked()
}

func (b *breaker) set(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(cause)
}

func (b *breaker) setLocked(cause error) {
	b.cause = cause
	b.ready.Store(cause == nil)
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// probeLocked starts a Probe, unless there is one or was a moment ago.
func (c *Caller) probeLocked() {
	b := &c.breaker
	now := time.Now()
	if b.ready.Load() || b.probes == maxProbes || now.Before(b.next) {
		return
	}
	b.probes++
	b.next = now.Add(probeBeside)
	go func() {
		err := c.asTimeout(c.guard(func() error { return c.Probe(context.Background()) }))
		if err != nil && c.Answered != nil && c.Answered(err) {
			err = nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probes--
		quick := time.Since(now) < probeBeside
		switch {
		case err == nil:
			b.setLocked(nil)
		case b.ready.Load() || !quick && b.probes > 0: // those beside it know better
		default:
			b.setLocked(err)
		}
		if quick {
			b.next = time.Now().Add(probeAfter)
		}
	}()
}
