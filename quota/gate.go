package quota

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// A Gate limits how much is in flight: requests being served, jobs being
// worked on. Where a Store counts what has begun, a Gate counts what has not
// ended.
//
// It is no queue: nothing waits in it, and a caller that asks again has no claim over
// one that asks for the first time. It is no lock either: see Hold.Lost.
//
// Implementations must be safe for concurrent use.
type Gate interface {
	// Acquire takes n of the limit places of key if so many are free. If they
	// are, the Hold keeps them until it is released; if not, it is nil, and
	// nothing was changed. It never waits for places. ctx is that of the call: the
	// Hold outlives it. Any string is a key of its own; an n of zero means 1.
	//
	// What counts are the places in use, by whatever limit they were taken: if
	// it is lowered, those taken stay, and nobody is admitted until enough of
	// them are free.
	//
	// Of the Decision, Limit, Remaining and At are set, and Allowed or, if n
	// exceeds limit, Never. RetryAfter, NextAfter and ResetAfter are zero, which
	// here means unknown: a place is free when its holder has finished, and no clock
	// knows when that will be.
	//
	// An error says that no place is held. An *AcquireError says that none can be,
	// by this call.
	Acquire(ctx context.Context, key string, limit, n int64) (*Hold, Decision, error)
}

// An AcquireError says which argument of Acquire cannot be right. Nothing was
// taken.
type AcquireError struct {
	Field  string // "limit" or "n"
	Reason string // what is wrong with it
}

func (e *AcquireError) Error() string {
	return fmt.Sprintf("quota: acquire: %s %s", e.Field, e.Reason)
}

// CheckAcquire returns an *AcquireError if limit and n cannot be those of an
// Acquire: a limit is at least 1 and below 2^53, and n is not negative. Every
// Gate calls it first.
func CheckAcquire(limit, n int64) error {
	switch {
	case limit < 1:
		return &AcquireError{"limit", fmt.Sprintf("is %d: must be at least 1", limit)}
	case limit > maxExact:
		return &AcquireError{"limit", fmt.Sprintf("is %d: must be below 2^53", limit)}
	case n < 0:
		return &AcquireError{"n", fmt.Sprintf("is %d: must not be negative", n)}
	}
	return nil
}

// A Hold is places taken from a Gate. Its methods are safe for concurrent use,
// and may be called on a nil Hold, which holds nothing.
//
//	hold, decision, err := gate.Acquire(ctx, key, 20, 1)
//	…
//	defer hold.Release()
//
// A Hold that becomes garbage without having been released gives its places
// back as well, some time later. That is a safety net, which a Gate may not
// have, and a mistake, which Memory and redisstore.Store count.
type Hold struct {
	once    sync.Once
	release func()
	lost    <-chan struct{}
	net     runtime.Cleanup
}

// NewHold is how a Gate makes a Hold. release, which gives the places back, is
// called by the first Release. dropped, if not nil, is called instead if the Hold
// becomes garbage; it must not block, and neither it nor what it refers to may
// refer to the Hold. lost may be nil.
func NewHold(release, dropped func(), lost <-chan struct{}) *Hold {
	h := &Hold{release: release, lost: lost}
	if dropped != nil {
		h.net = runtime.AddCleanup(h, func(dropped func()) { dropped() }, dropped)
	}
	return h
}

// Release gives the places back. Only the first call does: it can be repeated
// without taking anything from those who hold the places now. When one returns, they
// are free; but if they are kept elsewhere, Release waits no longer than for one
// call, nor than the context of Acquire lets it, and what is not done by then is
// done in the background.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		h.net.Stop()
		if h.release != nil {
			h.release()
		}
	})
}

// Lost returns a channel that is closed if the Gate cannot vouch for the places
// any longer: it could not be reached for too long, or this process did not reach it
// for too long, and they may be somebody else's. It is never closed, and
// may be nil, if places cannot get lost, as those of a Memory cannot.
//
// Code that limits load can ignore it. Code that must not go on without the places can
// give up, but not rely on it: by the time a loss is known, another caller may long have
// begun. A lost Hold is to be released like any other.
func (h *Hold) Lost() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.lost
}
