// Package remote calls something that may hang, such as a store in another process, and waits no
// longer than a timeout. With a Probe it is also a circuit breaker: after a call without an answer,
// further calls fail at once until the Probe succeeds.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// Limits on concurrent calls, so that a server that hangs does not accumulate goroutines.
const (
	maxCalls     = 2048 // in flight, unless Caller.MaxCalls says otherwise
	maxAbandoned = 128  // calls in flight whose callers have stopped waiting
)

// ErrBusy is wrapped by an Error if too many calls are in flight.
var ErrBusy = errors.New("too many calls in flight")

// A Caller limits calls to one remote thing. Set Name and Timeout; with a zero Timeout, every call times
// out. It is safe for concurrent use, and must not be copied.
type Caller struct {
	Name    string        // of what is called, for errors: "serverside: the Store"
	Timeout time.Duration // how long Do waits for a call

	// MaxCalls is how many calls may be in flight. If zero, 2048.
	MaxCalls int64

	// Probe, if not nil, makes the Caller a breaker: see Ready. It may take any time, but must
	// return, and must be safe for concurrent use.
	Probe func(context.Context) error

	// Answered reports whether an error of a call or a Probe is an answer: then the remote thing
	// is up. If nil, no error is an answer.
	Answered func(error) bool

	breaker breaker

	calls       atomic.Int64              // in flight
	awaited     atomic.Int64              // calls in flight whose callers still wait
	answers     atomic.Int64              // calls that succeeded
	lastAnswer  atomic.Pointer[time.Time] // when a call last succeeded
	lastStarved atomic.Pointer[time.Time] // when this process was last short of CPU time
}

// An Error is the error of a failed call.
type Error struct {
	Err error // the reason

	// Late reports that this process is slow, and the remote thing is not gone: too many
	// callers wait, or the call timed out while others were answered, or this process was
	// short of CPU time less than a second ago.
	Late bool

	// Unsent reports that the call was not made.
	Unsent bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// A timeoutError is a context.DeadlineExceeded with its own text.
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

// Do makes a call and returns its result. It returns an *Error if the call fails, panics or takes longer
// than c's Timeout, or if c is not Ready. If ctx ends first, it returns ctx's error.
//
// The call has the values of ctx and the Timeout, but does not end with ctx: when Do returns early, the
// call goes on. If it then succeeds, its result is passed to unused, unless unused is nil.
func Do[T any](ctx context.Context, c *Caller, call func(context.Context) (T, error), unused func(T)) (T, error) {
	return do(ctx, c, c.Ready, call, unused)
}

// DoPatiently is Do, but while the breaker is open, it waits within the Timeout for c to be Ready.
func DoPatiently[T any](
	ctx context.Context, c *Caller, call func(context.Context) (T, error), unused func(T),
) (T, error) {
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
		return none, &Error{Err: fmt.Errorf("%s: %w", c.Name, ErrBusy), Late: late, Unsent: true}
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
		if ctx.Err() != nil { // it is still unknown whether the call is answered in time
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

// A running is a call in flight. Its value and err are set when done is closed.
type running[T any] struct {
	ctx  context.Context
	done chan struct{}
	progress
	value T
	err   error
}

// A progress is what judge needs to know of a call.
type progress struct {
	began         time.Time
	answersBefore int64        // answers of the Caller at its start
	startDelay    atomic.Int64 // until its goroutine ran, in ns
}

// start makes a call in a new goroutine.
func start[T any](
	ctx context.Context, deadline time.Time, c *Caller, call func(context.Context) (T, error),
) *running[T] {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	r := &running[T]{ctx: ctx, done: make(chan struct{})}
	r.began, r.answersBefore = time.Now(), c.answers.Load()
	go func() {
		r.startDelay.Store(int64(time.Since(r.began)))
		r.err = fmt.Errorf("%s: the call ended its goroutine", c.Name)
		defer func() { // runs after runtime.Goexit too
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

// guard returns the error of call, or its panic as an error.
func (c *Caller) guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panicked: %v", c.Name, p)
		}
	}()
	return call()
}

// judge returns the *Error of a call that ended with err, or nil if err is nil. It opens the breaker
// unless err is an answer or this process is slow.
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

// Expired returns the *Error of a call that waited in its caller's queue from since until the Timeout. It
// is Late if other calls were answered meanwhile. It does not open the breaker.
func (c *Caller) Expired(since time.Time) error {
	last := c.lastAnswer.Load()
	late := c.isStarved(time.Since(since) > c.Timeout*3/2) || last != nil && last.After(since)
	return &Error{Err: c.timeout(), Late: late}
}

// asTimeout returns err, but if it is a timeout of the network, one that is a context.DeadlineExceeded.
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

// notReady returns the error of a call that was not made because Ready failed with err.
func (c *Caller) notReady(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == context.DeadlineExceeded:
		err = &timeoutError{fmt.Sprintf("%s could not be reached within %v", c.Name, c.Timeout)}
		c.Fails(err) // so that other calls do not wait
	}
	return &Error{Err: err, Unsent: true}
}

// isStarved reports whether this process is or was short of CPU time within the last second. If now
// is true, it is short now. Calls that started too late may make later ones fail.
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

// enter counts a call and returns ok, unless there are too many. Then late reports whether this
// process is slow: the callers still wait, or a call was answered within the Timeout.
func (c *Caller) enter() (ok, late bool) {
	waited, calls := c.awaited.Add(1), c.calls.Add(1)
	hung := calls-waited >= maxAbandoned
	if calls > cmp.Or(c.MaxCalls, maxCalls) || hung {
		c.awaited.Add(-1)
		c.calls.Add(-1)
		last := c.lastAnswer.Load()
		return false, !hung || last != nil && time.Since(*last) <= c.Timeout
	}
	return true, false
}

// Inline is Do for a call that returns in time by itself: it runs in the caller's goroutine, without a
// limit on concurrent calls. ctx must have a deadline. A call that ends because ctx was canceled does
// not open the breaker.
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
