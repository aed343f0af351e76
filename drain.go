package heed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// limitDrain is what the verdict on an attempt comes from whose request is drained.
const limitDrain = "WithDrain"

// WithDrain returns a context whose requests are drained once stop ends, so that workers
// which are told to stop, by signal.NotifyContext say, lose no answer:
//
//   - A request that is under way goes on to its end, but is not sent again: its response
//     or error is returned.
//   - One that waits, for a cool-down or a Pacer, waits no longer, and one that comes is
//     refused at once. errors.Is(err, ErrNotSent) holds for their errors, so that they can
//     be done later by another process.
//   - One that waits before it is sent again gets its last response, as if there were no
//     attempt left, or an error for which errors.Is(err, ErrNotSent) does not hold.
//
// An http.Client's request that follows a redirect belongs to one that was sent, and goes on.
//
// ctx must not be derived from stop, or what is under way would be cancelled. Of several
// WithDrain the inner one holds. If stop is nil, nothing is drained.
func WithDrain(ctx, stop context.Context) context.Context {
	o := overridesOf(ctx)
	o.drain = stop
	return context.WithValue(ctx, overridesKey{}, &o)
}

// A drainError says why a request waits no longer.
type drainError struct{ cause error }

func (e *drainError) Error() string { return "draining: " + text(e.cause) }

// drained returns an error if the request is to wait no longer.
func (c *call) drained() error {
	if c.drain == nil || c.drain.Err() == nil {
		return nil
	}
	return &drainError{context.Cause(c.drain)}
}

// draining is closed when the request is to wait no longer.
func (c *call) draining() <-chan struct{} {
	if c.drain == nil {
		return nil
	}
	return c.drain.Done()
}

// unsent is the error of a call of which nothing was sent.
func unsent(err error) error {
	if errors.As(err, new(*drainError)) {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return err
}

// sent is an error that is one of several of a call. If it is ErrNotSent, that is true of
// one attempt alone, and must not be found in the call's error.
func sent(err error) error {
	if errors.Is(err, ErrNotSent) {
		return errors.New(text(err))
	}
	return err
}

// A pacing is the context of a request while a Pacer holds it back: it ends when the
// request's does, or when that is drained.
type pacing struct {
	context.Context
	ended chan struct{}
}

func (p *pacing) Done() <-chan struct{} { return p.ended }

func (p *pacing) Err() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	if err := p.Context.Err(); err != nil {
		return err
	}
	return context.Canceled
}

// whilePaced returns the request as a Pacer sees it, and a function to call when the Pacer
// has let it go: its context does not end later, since Observe gets the same request.
func (c *call) whilePaced() (req *http.Request, release func()) {
	if c.drain == nil {
		return c.req, func() {}
	}
	p := &pacing{c.req.Context(), make(chan struct{})}
	end := sync.OnceFunc(func() { close(p.ended) })
	forget, forgetDrain := context.AfterFunc(p.Context, end), context.AfterFunc(c.drain, end)
	return c.req.WithContext(p), func() { forget(); forgetDrain() }
}
