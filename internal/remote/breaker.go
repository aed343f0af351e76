package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// probeAfter is the pause between the end of a Probe and the next one.
	probeAfter = 100 * time.Millisecond

	// probeBeside is how long after the start of a Probe another one starts beside it: the
	// connection of the first may be dead, and the next may have an answer at once.
	probeBeside = 500 * time.Millisecond

	maxProbes = 16 // in flight
)

// A breaker is open until a Probe succeeds, and again after a call without an answer. Its only
// goroutines are those of Probes, which calls start.
type breaker struct {
	ready atomic.Bool

	mu      sync.Mutex    // guards what follows
	cause   error         // why the breaker is open; nil if that is unknown yet
	probes  int           // in flight
	next    time.Time     // when the next Probe may start
	changed chan struct{} // closed at the next change; nil if nothing waits for it
}

// Ready returns nil if calls may be made: c has no Probe, or the last Probe or call was answered. While
// the first Probe is in flight, it blocks until the Probe or ctx ends. Otherwise the breaker is open:
// Ready returns the reason at once, and starts another Probe in the background, at most ten times a
// second.
func (c *Caller) Ready(ctx context.Context) error {
	for {
		changed, cause := c.state()
		switch {
		case changed == nil:
			return nil
		case cause != nil:
			return fmt.Errorf("%s is unavailable: %w", c.Name, cause)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitReady is Ready, but while the breaker is open, it blocks until a Probe or ctx ends.
func (c *Caller) WaitReady(ctx context.Context) error {
	for {
		changed, _ := c.state()
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
			return c.Ready(ctx)
		case <-time.After(probeAfter): // another Probe may start now
		case <-ctx.Done():
			return c.Ready(ctx)
		}
	}
}

// state returns nil and nil if calls may be made. Otherwise it returns a channel that is closed when
// that changes, and the reason if it is known. It starts a Probe if one is due.
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

// Answers closes the breaker. Call it after a sign that the remote thing answers.
func (c *Caller) Answers() { c.breaker.set(nil) }

// Fails reports that a Probe in flight will fail because of cause, so that callers need not wait for it.
// It does nothing while the breaker is closed.
func (c *Caller) Fails(cause error) {
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	if c.Probe != nil && !c.breaker.ready.Load() {
		c.breaker.setLocked(cause)
	}
}

// failed opens the breaker because a call ended with err, unless err is an answer. It starts a Probe.
func (c *Caller) failed(err error) {
	if c.Probe == nil || c.Answered != nil && c.Answered(err) {
		return
	}
	c.breaker.set(err)
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	if c.breaker.probes == 0 {
		c.breaker.next = time.Time{} // probe at once: the failure may be transient
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

// probeLocked starts a Probe if one is due.
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
		soon := time.Since(now) < probeBeside
		switch {
		case err == nil:
			b.setLocked(nil)
		case b.ready.Load() || !soon && b.probes > 0: // another Probe decides
		default:
			b.setLocked(err)
		}
		if soon {
			b.next = time.Now().Add(probeAfter)
		}
	}()
}
