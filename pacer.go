package heed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/internal/cool"
)

// A Pacer delays requests so that they stay within a limit. Package pace has several; write one
// only if none of them fits. A Pacer must be safe for concurrent use.
type Pacer interface {
	// Wait blocks until req may be sent. If that would be later than req may wait, it returns an
	// *OverdueError at once. If the context ends first, it returns the context's error. In both
	// cases req takes nothing of the limit.
	Wait(req *http.Request) error

	// Observe is called once after each Wait that returned nil, in the same goroutine, when the
	// attempt's response or error is there and before the verdict. Only the Response's header may
	// be used; a.OnEnd tells when its body has ended. If a.Err is ErrNotSent, the request was not
	// sent, and takes nothing of the limit.
	// a.Request may be another copy of the request than Wait got: a Pacer around this one may have
	// replaced its context.
	Observe(a Attempt)
}

// A BoundedPacer is a Pacer that can be told how long a request may wait at most. A Transport then
// calls WaitAtMost, which is cheaper than Wait with a copy of the request and another deadline.
type BoundedPacer interface {
	Pacer

	// WaitAtMost is Wait for a request that may wait for most, which may be zero, and no longer
	// than its context allows.
	WaitAtMost(req *http.Request, most time.Duration) error
}

// ErrNotSent is matched by the error of each call that never gave its request to Base: it would
// have had to wait too long (OverdueError), the Pacer refused it, its context ended before, or
// WithDrain stopped it. Another try repeats nothing. If http.Client followed a redirect, the call was
// sent, and its error does not match.
//
//	if errors.Is(err, heed.ErrNotSent) { // back into the queue
//
// It is also the Err of an Attempt that a Pacer admitted but that was not sent, for example because
// a cool-down was posted meanwhile.
var ErrNotSent = errors.New("heed: not sent")

// An OverdueError says that a request was not sent because it would have had to wait too long, for
// a cool-down or for a Pacer. To handle it:
//
//	var overdue *heed.OverdueError
//	if errors.As(err, &overdue) {
//		log.Printf("try again in %v", overdue.Wait)
//	}
//
// errors.Is(err, context.DeadlineExceeded) holds if the wait did not fit into the context's
// deadline, or if Err is that error.
type OverdueError struct {
	Key  string        // the key of the cool-down or of the Pacer
	Wait time.Duration // how long the request would have to wait, as far as known; never 0, but see Cause
	Left time.Duration // how long it may wait

	Deadline bool // Left is the time until the context's deadline

	// Cause is CauseCoolDown or CausePace. The Transport sets it: in what a Pacer returns it is 0. In
	// Trace.Refused it may be CauseOutage; then Wait is 0, because nobody knows it.
	Cause Cause

	// Limit names the setting that allows no longer wait: "RetryPolicy.MaxWait",
	// "RetryPolicy.MaxElapsed", "RetryPolicy.MaxOutage" or "deadline". It is "line" if 10,000 requests
	// wait for the same cool-down already, and "" if the Pacer has a limit of its own.
	Limit string

	// Err is the Pacer's error, if that was not just an OverdueError.
	Err error

	again bool // an attempt was sent before
}

// Values of OverdueError.Limit.
const (
	limitMaxWait    = "RetryPolicy.MaxWait"
	limitMaxElapsed = "RetryPolicy.MaxElapsed"
	limitDeadline   = "deadline"
	limitLine       = "line"
	limitMaxOutage  = "RetryPolicy.MaxOutage"
)

func (e *OverdueError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "heed: %s must wait %v", e.Key, rounded(e.Wait))
	// It has waited already, and the rest alone would not be too long.
	waited := e.Cause == CauseCoolDown && e.Limit == limitMaxWait && e.Wait <= e.Left
	if waited {
		s.WriteString(" more")
	}
	switch e.Cause {
	case CauseOutage:
		return fmt.Sprintf("heed: %s is down for longer than %s (%v)", e.Key, e.Limit, rounded(e.Left))
	case CauseCoolDown:
		s.WriteString(" for a cool-down after a refusal")
	case CausePace:
		s.WriteString(" for its Pacer")
	}
	switch left := rounded(e.Left); {
	case waited && e.Err == nil:
		fmt.Fprintf(&s, ", in all longer than %s (%v)", e.Limit, left)
	case e.Err != nil:
		s.Reset()
		fmt.Fprintf(&s, "heed: %s was refused by its Pacer: %s", e.Key, errorText(e.Err))
	case e.Deadline:
		fmt.Fprintf(&s, ", longer than the %v left until the deadline", left)
	case e.Limit == limitLine:
		fmt.Fprintf(&s, ", but %d requests wait for it already, the most that may", cool.LongestLine)
	case e.Limit == limitMaxElapsed:
		fmt.Fprintf(&s, ", longer than the %v left of %s", left, e.Limit)
	case e.Limit != "":
		fmt.Fprintf(&s, ", longer than %s (%v)", e.Limit, left)
	default:
		fmt.Fprintf(&s, ", longer than the %v that it may wait", left)
	}
	return s.String()
}

// rounded rounds d for people to read.
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

// Timeout returns true: for the caller a wait that is too long is a timeout.
func (e *OverdueError) Timeout() bool { return true }

// Temporary returns true: the same request may succeed later.
func (e *OverdueError) Temporary() bool { return true }

// Is reports whether target is context.DeadlineExceeded and the wait exceeded the context's
// deadline.
func (e *OverdueError) Is(target error) bool {
	return e.Deadline && target == context.DeadlineExceeded
}

// paceAtMost limits the wait of a Pacer. One that is not a BoundedPacer gets a deadline, at least a
// millisecond away, so that it can admit a request even where no wait is allowed.
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
	overdue := OverdueError{Key: hosts.Key(req.URL.Scheme, req.URL.Host), Wait: max(most, time.Second)}
	if theirs := (*OverdueError)(nil); errors.As(err, &theirs) {
		overdue = *theirs // its deadline is not the caller's
	}
	overdue.Left, overdue.Deadline = most, false
	return &overdue
}
