// Package remote asks what may hang, such as a store in another process, and waits for no
// longer than a timeout.
package remote

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// How many calls there may be. What hangs must not gather goroutines, nor be waited for
// again and again.
const (
	mostCalls     = 2048 // under way
	mostAbandoned = 128  // of them, that nobody waits for any longer
)

// ErrBusy is what an Error wraps if too many calls are under way for another one.
var ErrBusy = errors.New("is not asked: too many calls are under way")

// A Caller bounds the calls of one remote thing. The zero value times out at once. It is
// safe for concurrent use, and must not be copied.
type Caller struct {
	Name    string        // what is called, for errors: "serverside: the Store"
	Timeout time.Duration // how long a call is waited for

	calls    atomic.Int64              // under way
	waited   atomic.Int64              // of them, those that are waited for
	answers  atomic.Int64              // how many have succeeded
	answered atomic.Pointer[time.Time] // when one did last
	starved  atomic.Pointer[time.Time] // when one had to wait for a processor last
}

// An Error is a call that failed.
type Error struct {
	Err error // why

	// Late says that it is this process that is late, and what was asked is not gone: as
	// many calls are waited for as there may be, one timed out while others were answered,
	// or one had to wait for a processor, within a second, for more than half of the Timeout.
	Late bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Do returns what ask returns, or an *Error: that of ask, or that it panicked, or that it
// took longer than c's Timeout. Then it is left to itself; what it returns in the end
// without an error is passed to unused, unless that is nil.
//
// The call does not end with ctx, but has its values: what a client may have used must be
// counted, also if the client goes away.
func Do[T any](ctx context.Context, c *Caller, ask func(context.Context) (T, error), unused func(T)) (T, error) {
	var none T
	if ok, late := c.enter(); !ok {
		return none, &Error{fmt.Errorf("%s %w", c.Name, ErrBusy), late}
	}
	began, before := time.Now(), c.answers.Load()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
	answer := make(chan result[T]) // without a buffer: somebody takes it, or it is unused
	go func() {
		r := result[T]{waited: time.Since(began), err: fmt.Errorf("%s ended the goroutine that asked it", c.Name)}
		defer func() { // also after a panic or runtime.Goexit
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%s panicked: %v", c.Name, p)
			}
			c.calls.Add(-1)
			if r.err == nil {
				now := time.Now()
				c.answered.Store(&now)
				c.answers.Add(1)
			}
			select {
			case answer <- r:
			case <-ctx.Done():
				if r.err == nil && unused != nil {
					unused(r.value)
				}
			}
		}()
		r.value, r.err = ask(ctx)
	}()
	defer c.waited.Add(-1)
	defer cancel()
	select {
	case r := <-answer:
		if r.err != nil {
			late := errors.Is(r.err, context.DeadlineExceeded) && c.answers.Load() != before
			return none, &Error{r.err, c.isStarved(r.waited > c.Timeout/2) || late}
		}
		return r.value, nil
	case <-ctx.Done():
		late := c.isStarved(time.Since(began) > c.Timeout*3/2) || c.answers.Load() != before
		return none, &Error{fmt.Errorf("%s did not answer within %v", c.Name, c.Timeout), late}
	}
}

// isStarved reports whether this process is, or was within a second, short of processors. A
// call that it made too late may have closed what it asks (a breaker) for those that follow.
func (c *Caller) isStarved(now bool) bool {
	at := time.Now()
	if now {
		c.starved.Store(&at)
	}
	last := c.starved.Load()
	return last != nil && at.Sub(*last) < time.Second
}

// answeredSince reports whether a call has succeeded since a time.
func (c *Caller) answeredSince(at time.Time) bool {
	last := c.answered.Load()
	return last != nil && !last.Before(at)
}

// enter reports whether there may be one more call; and if not, whether it is this process
// that is late: as many as there may be are waited for, or some have been answered lately.
func (c *Caller) enter() (ok, late bool) {
	waited, calls := c.waited.Add(1), c.calls.Add(1)
	hung := calls-waited >= mostAbandoned
	if calls > mostCalls || hung {
		c.waited.Add(-1)
		c.calls.Add(-1)
		return false, !hung || c.answeredSince(time.Now().Add(-c.Timeout))
	}
	return true, false
}

type result[T any] struct {
	value  T
	err    error
	waited time.Duration // for a processor
}
