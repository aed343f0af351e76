package quota

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// A Gate limits how much is in flight, such as requests being served. A Store counts what
// has started; a Gate counts what has not ended.
//
//	var gate quota.Memory
//	hold, decision, err := gate.Acquire(ctx, "alice", 20, 1) // at most 20 at once
//	if err != nil || !decision.Allowed {
//		return errBusy
//	}
//	defer hold.Release()
//
// A Gate is not a queue: nothing waits in it, and a caller that tries again has no
// priority. It is not a lock either: see Hold.Lost.
//
// Implementations must be safe for concurrent use.
type Gate interface {
	// Acquire takes n of the limit places of key if so many are free. The Hold keeps them
	// until it is released; if Acquire denies them, the Hold is nil and nothing has
	// changed. Acquire never waits for places. ctx is only for the call: the Hold
	// outlives it. Any string is a valid key, and an n of zero means 1.
	//
	// Places in use count whatever limit they were taken with. After the limit is
	// lowered they stay, and Acquire denies until enough of them are free.
	//
	// The Decision has Limit, Remaining and At, and Allowed or, if n exceeds limit,
	// Never. RetryAfter, NextAfter and ResetAfter are zero, which means unknown here: a
	// place is free when its Hold is released, and no clock knows when.
	//
	// An error means that no place is held. With an *AcquireError, this call can never
	// succeed.
	Acquire(ctx context.Context, key string, limit, n int64) (*Hold, Decision, error)
}

// An AcquireError says which argument of Acquire is invalid. Nothing was taken.
type AcquireError struct {
	Field  string // "limit" or "n"
	Reason string // what is wrong with it
}

func (e *AcquireError) Error() string {
	return fmt.Sprintf("quota: acquire: %s %s", e.Field, e.Reason)
}

// CheckAcquire returns an *AcquireError if limit or n is invalid: limit must be at least
// 1 and below 2^53, and n must not be negative. Every Gate calls it first.
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

// A Hold is places taken from a Gate. Release it when the work is done:
//
//	hold, decision, err := gate.Acquire(ctx, key, 20, 1)
//	…
//	defer hold.Release()
//
// Its methods are safe for concurrent use and for a nil Hold, which holds nothing.
//
// To lose a Hold without a Release is a mistake. A Memory and a redisstore.Store then give
// its places back once it is garbage collected, and count it in Dropped. Other Gates need
// not.
type Hold struct {
	once    sync.Once
	release func()
	lost    <-chan struct{}
	cleanup runtime.Cleanup
}

// NewHold returns a Hold, for implementations of Gate. The first Release calls release,
// which gives the places back. If the Hold becomes garbage instead, dropped is called, if
// not nil; it must not block, and must not refer to the Hold, directly or not. lost may
// be nil.
func NewHold(release, dropped func(), lost <-chan struct{}) *Hold {
	h := &Hold{release: release, lost: lost}
	if dropped != nil {
		h.cleanup = runtime.AddCleanup(h, func(dropped func()) { dropped() }, dropped)
	}
	return h
}

// Release gives the places back. Only the first call has an effect. When a call returns
// the places are free. A Gate in another process may be slow: then Release waits for one
// call at most, no longer than the context of Acquire allows, and finishes in the
// background.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		h.cleanup.Stop()
		if h.release != nil {
			h.release()
		}
	})
}

// Lost returns a channel that is closed if the Gate no longer guarantees the places: it
// was out of reach for too long, so another caller may have them. If places cannot get
// lost, as with a Memory, the channel is never closed and may be nil.
//
// Code that limits load can ignore it. Code that must stop without the places can use it
// to stop, but not rely on it: by the time the loss is known, another caller may long
// have started. Release a lost Hold like any other.
func (h *Hold) Lost() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.lost
}
