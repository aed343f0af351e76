// Package remote calls what may hang, such as a store in another process, and waits no longer
// than a timeout. With a Probe, it is a circuit breaker: after a call without an answer, others
// fail at once until the Probe succeeds.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// How many calls there may be. What hangs must not gather goroutines, nor be waited for
// again and again.
const (
	maxCalls     = 2048 // under way
	maxAbandoned = 128  // of them, that nobody waits for any longer
)

// ErrBusy is what an Error wraps if too many calls are under way for another one.
var ErrBusy = errors.New("is not called: too many calls are under way")

// A Caller bounds the calls of one remote thing. The zero value times out at once. It is
// safe for concurrent use, and must not be copied.
type Caller struct {
	Name    string        // what is called, for errors: "serverside: the Store"
	Timeout time.Duration // how long a call is waited for

	// Probe, if not nil, makes the Caller a breaker: see Ready. It may take as long as it likes,
	// but must return, and must be safe for concurrent use.
	Probe func(context.Context) error

	// Answered reports whether an error of a call or a Probe is an answer, so that what is
	// called is there. If nil, no error is.
	Answered func(error) bool

	breaker breaker

	calls       atomic.Int64              // under way
	awaited     atomic.Int64              // of them, those that are waited for
	answers     atomic.Int64              // how many have succeeded
	lastAnswer  atomic.Pointer[time.Time] // when one did last
	lastStarved atomic.Pointer[time.Time] // when this process was last short of processors
}

// An Error is a call that failed.
type Error struct {
	Err error // why

	// Late says that this process is the one that is slow, and what was called is not gone: as
	// many calls are awaited as there may be, or one timed out while others were answered, or
	// this process was short of processors less than a second ago.
	Late bool

	// Unsent says that the call was not made.
	Unsent bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// A timeoutError is a context.DeadlineExceeded.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// IsLate reports whether err is, or wraps, an Error that is Late.
func IsLate(err error) bool {
	for e, ok := errors.AsType[*Error](err); ok; e, ok = errors.AsType[*Error](e.Err) {
		if e.Late {
			return true
		}
	}
	return false
}

// Do returns what call returns, or an *Error: that of call, or that it panicked, or that it
// took longer than c's Timeout, or that c is not Ready. If ctx ends first, it returns ctx's
// error.
//
// A call that is not waited for any longer is left to itself: it has the values of ctx and the
// Timeout, but does not end with ctx. What it returns in the end without an error is passed to
// unused, unless that is nil.
func Do[T any](ctx context.Context, c *Caller, call func(context.Context) (T, error), unused func(T)) (T, error) {
	return do(ctx, c, c.Ready, call, unused)
}

// DoPatiently is Do of a call that can wait, within its Timeout, for c to be Ready.
func DoPatiently[T any](ctx context.Context, c *Caller, call func(context.Context) (T, error), unused func(T)) (T, error) {
	return do(ctx, c, c.WaitReady, call, unused)
}

func do[T any](ctx context.Context, c *Caller, ready func(context.Context) error,
	call func(context.Context) (T, error), unused func(T)) (T, error) {
	var none T
	deadline := time.Now().Add(c.Timeout)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := ready(within); err != nil {
		return none, c.notReady(ctx, err)
	}
	if ok, late := c.enter(); !ok {
		return none, &Error{Err: fmt.Errorf("%s %w", c.Name, ErrBusy), Late: late, Unsent: true}
	}
	defer c.awaited.Add(-1)
	r := start(context.WithoutCancel(ctx), deadline, c, call)
	select {
	case <-r.done:
		return r.value, c.judge(r.err, &r.progress)
	case <-within.Done():
	}
	err := ctx.Err()
	if err == nil {
		err = c.judge(c.timeout(), &r.progress)
	}
	go func() {
		if ctx.Err() != nil { // so nobody has found out yet whether there is an answer in time
			select {
			case <-r.done:
				_ = c.judge(r.err, &r.progress)
			case <-r.ctx.Done():
				_ = c.judge(c.timeout(), &r.progress)
			}
		}
		<-r.done
		if r.err == nil && unused != nil {
			unused(r.value)
		}
	}()
	return none, err
}

// A running call, and when done is closed its result.
type running[T any] struct {
	ctx  context.Context
	done chan struct{}
	progress
	value T
	err   error
}

// A progress is what judge needs to know about a call.
type progress struct {
	began         time.Time
	answersBefore int64        // how many answers there were
	startDelay    atomic.Int64 // until its goroutine ran, in ns
}

// start makes a call in a goroutine of its own.
func start[T any](ctx context.Context, deadline time.Time, c *Caller, call func(context.Context) (T, error)) *running[T] {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	r := &running[T]{ctx: ctx, done: make(chan struct{})}
	r.began, r.answersBefore = time.Now(), c.answers.Load()
	go func() {
		r.startDelay.Store(int64(time.Since(r.began)))
		r.err = fmt.Errorf("%s ended the goroutine that called it", c.Name)
		defer func() { // also after runtime.Goexit
			c.calls.Add(-1)
			if r.err == nil {
				c.succeeded()
			}
			close(r.done)
			cancel()
		}()
		r.err = c.guard(func() (err error) { r.value, err = call(ctx); return err })
	}()
	return r
}

// guard returns the error of call, or that it panicked.
func (c *Caller) guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panicked: %v", c.Name, p)
		}
	}()
	return call()
}

// judge returns the *Error of a call that ended with err, or nil if that is nil. It opens the breaker
// if err is no answer, unless the reason is that this process is slow.
func (c *Caller) judge(err error, p *progress) error {
	if err == nil {
		return nil
	}
	err = c.asTimeout(err)
	startDelay, took := time.Duration(p.startDelay.Load()), time.Since(p.began)
	late := IsLate(err) || c.isStarved(startDelay > c.Timeout/2 || took > c.Timeout*3/2) ||
		errors.Is(err, context.DeadlineExceeded) && c.answers.Load() != p.answersBefore
	if !late {
		c.failed(err)
	}
	return &Error{Err: err, Late: late}
}

// Expired returns the *Error of a call that its caller has kept in a queue since some time until the
// Timeout was over. It is Late if others were answered meanwhile. It does not open the breaker.
func (c *Caller) Expired(since time.Time) error {
	last := c.lastAnswer.Load()
	late := c.isStarved(time.Since(since) > c.Timeout*3/2) || last != nil && last.After(since)
	return &Error{Err: c.timeout(), Late: late}
}

// asTimeout returns err, or if it is one of the network that says that time is over, one that is
// a context.DeadlineExceeded.
func (c *Caller) asTimeout(err error) error {
	failed, ok := errors.AsType[net.Error](err)
	if !ok || !failed.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &timeoutError{fmt.Sprintf("%s did not answer in time: %v", c.Name, err)}
}

func (c *Caller) timeout() error {
	return &timeoutError{fmt.Sprintf("%s did not answer within %v", c.Name, c.Timeout)}
}

// notReady is the error of a call that was not made because of err, of Ready.
func (c *Caller) notReady(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == context.DeadlineExceeded:
		err = &timeoutError{fmt.Sprintf("%s could not be reached within %v", c.Name, c.Timeout)}
		c.Fails(err) // so that no other call waits
	}
	return &Error{Err: err, Unsent: true}
}

// isStarved reports whether this process is short of processors, or was within the last second. If
// now is true, it is, and that is remembered: calls that were made too late may make others fail.
func (c *Caller) isStarved(now bool) bool {
	at := time.Now()
	if now {
		c.lastStarved.Store(&at)
	}
	last := c.lastStarved.Load()
	return last != nil && at.Sub(*last) < time.Second
}

func (c *Caller) succeeded() {
	now := time.Now()
	c.lastAnswer.Store(&now)
	c.answers.Add(1)
}

// enter counts one more call and reports ok, unless there are too many. Then late reports whether
// this process is slow: they are still awaited, or one was answered within the Timeout.
func (c *Caller) enter() (ok, late bool) {
	waited, calls := c.awaited.Add(1), c.calls.Add(1)
	hung := calls-waited >= maxAbandoned
	if calls > maxCalls || hung {
		c.awaited.Add(-1)
		c.calls.Add(-1)
		last := c.lastAnswer.Load()
		return false, !hung || last != nil && time.Since(*last) <= c.Timeout
	}
	return true, false
}

// Inline is Do of a call that returns in time by itself. It is made in the goroutine of its caller,
// and is not counted. ctx must have a deadline. A call that ends because ctx was canceled says
// nothing about what it calls.
func Inline(ctx context.Context, c *Caller, call func(context.Context) error) error {
	if err := c.Ready(ctx); err != nil {
		return &Error{Err: err, Unsent: true}
	}
	p := progress{began: time.Now(), answersBefore: c.answers.Load()}
	err := c.guard(func() error { return call(ctx) })
	switch {
	case err == nil:
		c.succeeded()
		return nil
	case ctx.Err() == context.Canceled && errors.Is(err, context.Canceled):
		return ctx.Err()
	}
	return c.judge(err, &p)
}
