package pace

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
)

const (
	// forever is the wait for what never comes, and how long a request may wait that may
	// wait for any time.
	forever = rate.InfDuration

	// unknown is a wait that may end at any moment, or never.
	unknown = forever - 1

	// grace is what is added to a deadline once the wait was found to fit, so that no
	// rounding can end it a nanosecond before the turn.
	grace = time.Millisecond
)

// A deadline is the latest time at which a request's turn may come.
type deadline struct {
	at      time.Time // zero if there is none
	context bool      // it is the context's: a turn must come before it, not with it
}

// deadlineOf is the earlier of most from now and the context's deadline.
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

// allows reports whether a wait that begins now is short enough.
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

// most is the longest wait that is allowed, if it begins now.
func (d deadline) most(now time.Time) time.Duration {
	left := d.left(now)
	if d.context {
		left--
	}
	return left
}

func (d deadline) eased() deadline {
	if !d.at.IsZero() {
		d.at = d.at.Add(grace)
	}
	return d
}

// overdue says that a wait that begins now is too long.
func (d deadline) overdue(key string, wait time.Duration, now time.Time) error {
	err := &heed.OverdueError{Key: key, Wait: wait, Left: d.left(now), Deadline: d.context}
	if wait == unknown {
		err.Wait = err.Left
	}
	if wait == forever {
		return fmt.Errorf("pace: the limit of %s never lets this request go: %w", key, err)
	}
	return err
}

// ended is the error of a context that has ended: its own, and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
