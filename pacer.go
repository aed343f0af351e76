package heed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A Pacer holds requests back so that a limit is not exceeded. It must be safe
// for concurrent use.
type Pacer interface {
	// Wait blocks until req may be sent. It returns an *OverdueError at once if
	// that is later than req may wait, and the context's error if the context
	// ends first. What it gave and was not used is given back.
	Wait(req *http.Request) error

	// Observe is called once for each Wait that returned nil, by the same
	// goroutine, after the header or error and before the verdict. Response is
	// the live one: its header only. If a.Err is ErrNotSent, nothing was sent,
	// and the turn is given back. a.Request may be another copy of the request than
	// Wait had: a Pacer in between may have given it one with a context of its own.
	Observe(a Attempt)
}

// A BoundedPacer is a Pacer that can be told how long req may wait at most,
// besides its context's deadline. A Transport prefers WaitAtMost, which costs
// nothing, to Wait with a deadline of its own in a copy of the request.
type BoundedPacer interface {
	Pacer

	// WaitAtMost is Wait for a request that may wait for most, which may be
	// zero, and no longer than its context allows.
	WaitAtMost(req *http.Request, most time.Duration) error
}

// ErrNotSent is the error of an Attempt that a Pacer let go and that was not
// sent after all: because a cool-down was posted meanwhile, or because its body
// could not be had again. It is in the error of a call, too, of which nothing was sent
// because of WithDrain.
var ErrNotSent = errors.New("heed: not sent")

// An OverdueError says that a request was not sent because its turn would have
// come later than it may wait: a cool-down or a Pacer's line is too long.
//
// errors.Is(err, context.DeadlineExceeded) holds if it was the context's deadline that
// the wait did not fit into, or if Err is that error.
type OverdueError struct {
	Key  string        // what the wait applies to: a cool-down's key or a Pacer's
	Wait time.Duration // how long the request would have to wait
	Left time.Duration // how long it may

	Deadline bool // Left is the time to the context's deadline

	// Cause is CauseCoolDown or CausePace, or 0 in an error that a Pacer has made.
	Cause Cause

	// Limit is what Left comes from: "RetryPolicy.MaxWait", "RetryPolicy.MaxElapsed",
	// "deadline", "line" if 10,000 requests wait for the same cool-down already, or "" if
	// it is a Pacer's own bound.
	Limit string

	// Err is what the Pacer returned, if that was more than an OverdueError, or none.
	Err error
}

// Limits that a wait does not fit into.
const (
	limitMaxWait    = "RetryPolicy.MaxWait"
	limitMaxElapsed = "RetryPolicy.MaxElapsed"
	limitDeadline   = "deadline"
	limitLine       = "line"
)

func (e *OverdueError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "heed: %s must wait %v", e.Key, rounded(e.Wait))
	switch e.Cause {
	case CauseCoolDown:
		s.WriteString(" for a cool-down that the server asked for")
	case CausePace:
		s.WriteString(" for its Pacer")
	}
	switch left := rounded(e.Left); {
	case e.Err != nil:
		s.Reset()
		fmt.Fprintf(&s, "heed: %s was refused by its Pacer: %s", e.Key, text(e.Err))
	case e.Deadline:
		fmt.Fprintf(&s, ", longer than the %v left until the deadline", left)
	case e.Limit == limitLine:
		fmt.Fprintf(&s, ", for which %d requests wait already: no more may", longestLine)
	case e.Limit == limitMaxElapsed:
		fmt.Fprintf(&s, ", longer than the %v left of %s", left, e.Limit)
	case e.Limit != "":
		fmt.Fprintf(&s, ", longer than %s (%v)", e.Limit, left)
	default:
		fmt.Fprintf(&s, ", longer than the %v it may", left)
	}
	return s.String()
}

// rounded is d as people want to read it.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

// Unwrap returns Err.
func (e *OverdueError) Unwrap() error { return e.Err }

// Timeout reports true: to the caller, a turn that comes too late is a timeout.
func (e *OverdueError) Timeout() bool { return true }

// Temporary reports true: the same request may succeed later.
func (e *OverdueError) Temporary() bool { return true }

// Is reports whether target is context.DeadlineExceeded and there was a deadline.
func (e *OverdueError) Is(target error) bool {
	return e.Deadline && target == context.DeadlineExceeded
}

// paceAtMost bounds a Pacer that does not know of bounds by a deadline, which
// leaves it a moment even where no wait is allowed.
func paceAtMost(p Pacer, req *http.Request, most time.Duration) error {
	if bounded, ok := p.(BoundedPacer); ok {
		return bounded.WaitAtMost(req, most)
	}
	ctx, cancel := context.WithTimeout(req.Context(), max(most, time.Millisecond))
	defer cancel()
	err := p.Wait(req.WithContext(ctx))
	if err == nil || req.Context().Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	overdue := OverdueError{Key: hosts.Key(req.URL.Scheme, req.URL.Host), Wait: most}
	if theirs := (*OverdueError)(nil); errors.As(err, &theirs) {
		overdue = *theirs // but of a deadline that is not the caller's
	}
	overdue.Left, overdue.Deadline = most, false
	return &overdue
}
