package pace

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
)

const (
	// forever is the wait for a turn that never comes, and the patience of a
	// request that waits for any other.
	forever = rate.InfDuration

	// grace is what is added to a bound once the wait was found to fit, so
	// that no rounding can end it a nanosecond before the turn.
	grace = time.Millisecond
)

// A bound is the latest time at which a request's turn may come.
type bound struct {
	until    time.Time // zero if there is none
	deadline bool      // of the context: a turn must come before it, not with it
}

// boundOf is the earlier of most from now and the context's deadline.
func boundOf(ctx context.Context, most time.Duration, now time.Time) bound {
	var b bound
	if most < forever {
		b.until = now.Add(most)
	}
	if d, ok := ctx.Deadline(); ok && (b.until.IsZero() || !d.After(b.until)) {
		return bound{d, true}
	}
	return b
}

// holds reports whether a wait that begins now is short enough.
func (b bound) holds(wait time.Duration, now time.Time) bool {
	left := b.left(now)
	return wait < left || wait == left && !b.deadline && wait < forever
}

func (b bound) left(now time.Time) time.Duration {
	if b.until.IsZero() {
		return forever
	}
	return max(b.until.Sub(now), 0)
}

// most is the longest wait that holds, if it begins now.
func (b bound) most(now time.Time) time.Duration {
	left := b.left(now)
	if b.deadline {
		left--
	}
	return left
}

func (b bound) eased() bound {
	if !b.until.IsZero() {
		b.until = b.until.Add(grace)
	}
	return b
}

// overdue says that a wait that begins now is too long.
func (b bound) overdue(key string, wait time.Duration, now time.Time) error {
	err := &heed.OverdueError{Key: key, Wait: wait, Left: b.left(now), Deadline: b.deadline}
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
