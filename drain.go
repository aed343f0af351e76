package heed

import (
	"context"
	"net/http"
	"sync"
)

// limitDrain is the Limit of a verdict that comes from WithDrain.
const limitDrain = "WithDrain"

// WithDrain returns a context whose requests are drained once stop ends. Use it to stop workers
// without losing answers:
//
//	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//	defer cancel()
//	ctx := heed.WithDrain(context.Background(), stop)
//	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
//
// After stop has ended:
//
//   - A request that is under way is completed, but not sent again: its response or error is
//     returned.
//   - A request that waits for a cool-down, a Pacer or a host that is down, and any new request,
//     fails at once with an error for which errors.Is(err, ErrNotSent) holds. Another process can do
//     it later.
//   - A request that waits before a retry gets its last response, or an error for which
//     errors.Is(err, ErrNotSent) does not hold.
//
// When http.Client follows a redirect, the new request continues one that was sent, and is not
// refused.
//
// ctx must not be derived from stop, or requests under way would be cancelled. If WithDrain is
// called twice, the later stop applies. If stop is nil, nothing is drained.
func WithDrain(ctx, stop context.Context) context.Context {
	o := overridesOf(ctx)
	o.drain = stop
	return context.WithValue(ctx, overridesKey{}, &o)
}

// A drainError says that a request was not sent because of WithDrain.
type drainError struct{ cause error }

func (e *drainError) Error() string { return "stopped by WithDrain: " + errorText(e.cause) }

// drained returns an error if WithDrain's stop has ended.
func (c *call) drained() error {
	if c.drain == nil || c.drain.Err() == nil {
		return nil
	}
	return &drainError{context.Cause(c.drain)}
}

// draining returns a channel that is closed when WithDrain's stop ends.
func (c *call) draining() <-chan struct{} {
	if c.drain == nil {
		return nil
	}
	return c.drain.Done()
}

// A pacingContext is a request's context while a Pacer delays it. It ends with the request's own
// context, or when WithDrain's stop ends.
type pacingContext struct {
	context.Context
	ended chan struct{}
}

func (p *pacingContext) Done() <-chan struct{} { return p.ended }

func (p *pacingContext) Err() error {
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

// pacedRequest returns the request that the Pacer gets, and a function to call when the Pacer has
// returned. After that, the request's context no longer ends, because Observe gets the same
// request.
func (c *call) pacedRequest() (req *http.Request, release func()) {
	if c.drain == nil {
		return c.req, func() {}
	}
	p := &pacingContext{c.req.Context(), make(chan struct{})}
	end := sync.OnceFunc(func() { close(p.ended) })
	forget, forgetDrain := context.AfterFunc(p.Context, end), context.AfterFunc(c.drain, end)
	return c.req.WithContext(p), func() { forget(); forgetDrain() }
}
