package pace

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
)

const (
	// forever is the wait for what never comes, and the bound of a request that may wait
	// any time.
	forever = rate.InfDuration

	// unknown is a wait that may end at any moment, or never.
	unknown = forever - 1

	// atLeast is the wait in an OverdueError if it is not known to be longer: a caller can
	// pass it on as a Retry-After.
	atLeast = time.Second

	// grace is added to a deadline after the wait was found to fit, so that rounding
	// cannot end the wait a nanosecond early.
	grace = time.Millisecond
)

// A deadline is the latest time at which a request may still be admitted.
type deadline struct {
	at      time.Time // zero if there is none
	context bool      // it comes from the context, so admission must come before it, not at it
}

// deadlineOf returns the earlier of the context's deadline and most from now.
func deadlineOf(ctx context.Context, most time.Duration, now time.Time) deadline {
	var d deadline
	if most < unknown {
		d.at = now.Add(most)
	}
	if at, ok := ctx.Deadline(); ok && (d.at.IsZero() || !at.After(d.at)) {
		return deadline{at, true}
	}
	return d
}

// allows reports whether a wait that starts now is short enough.
func (d deadline) allows(wait time.Duration, now time.Time) bool {
	left := d.left(now)
	if wait == unknown {
		return left > 0
	}
	return wait < left || wait == left && !d.context && wait < forever
}

func (d deadline) left(now time.Time) time.Duration {
	if d.at.IsZero() {
		return forever
	}
	return max(d.at.Sub(now), 0)
}

// most returns the longest allowed wait that starts now.
func (d deadline) most(now time.Time) time.Duration {
	left := d.left(now)
	if d.context {
		left--
	}
	return left
}

func (d deadline) withGrace() deadline {
	if !d.at.IsZero() {
		d.at = d.at.Add(grace)
	}
	return d
}

// overdue returns the error for a wait that starts now and is too long.
func (d deadline) overdue(key string, wait time.Duration, now time.Time) error {
	err := &heed.OverdueError{Key: key, Wait: wait, Left: d.left(now), Deadline: d.context}
	if wait == unknown || wait <= 0 { // or the time is over
		err.Wait = max(err.Left, atLeast)
	}
	if wait == forever {
		return fmt.Errorf("pace: the limit of %s never admits this request: %w", key, err)
	}
	return err
}

// ended returns the error of a context that has ended, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
