package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	storeTime    = 50 * time.Millisecond // how long a Store may take to answer
	probeEvery   = time.Second           // how often a Store that failed is asked again
	maxAbandoned = 16                    // calls that may hang before the Store is not asked at all
)

var (
	errLate = fmt.Errorf("pace: the Store did not answer within %v", storeTime)
	errOpen = errors.New("pace: the Store is not asked because it failed")
)

// A breaker keeps a Store that fails, or does not answer, from holding requests up. It is
// open after a call that failed: then one call a second probes whether the Store has
// recovered. A call that has not ended in time, whatever its context says, is abandoned.
type breaker struct {
	trusted bool        // the Store is in this process's memory, and cannot fail
	report  func(error) // is called with each error of the Store

	mu        sync.Mutex // guards all below
	probe     time.Time  // when a Store that failed may be asked again; zero if it works
	abandoned int        // calls that were abandoned and have not ended yet
}

// call calls f, and returns what it does, or errOpen if the Store is not to be asked. It
// returns after storeTime at the latest, or when ctx ends. f goes on without it, so that
// the Store is judged by its own time and not by the caller's: what f returns then is
// given to late instead.
func (b *breaker) call(ctx context.Context, f func(context.Context) error, late func(error)) error {
	if b.trusted {
		return f(ctx)
	}
	ok, probing := b.admit(time.Now())
	if !ok {
		return errOpen
	}
	answer, gone := b.start(context.WithoutCancel(ctx), f, late)
	if probing && endsSoon(ctx) {
		b.abandon(+1)
		close(gone)
		return errOpen
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		b.abandon(+1)
		close(gone)
		return context.Cause(ctx)
	}
}

// start calls f in a goroutine of its own. The first of f's error and errLate is what the
// Store is judged by, and is the answer to the caller unless that is gone.
func (b *breaker) start(ctx context.Context, f func(context.Context) error, late func(error)) (<-chan error, chan<- struct{}) {
	answer, gone := make(chan error), make(chan struct{})
	reply := func(err error) bool {
		b.judge(err)
		select {
		case answer <- err:
			return true
		case <-gone:
			return false
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, storeTime, errLate)
	inTime := context.AfterFunc(bounded, func() {
		b.abandon(+1)
		if !reply(errLate) {
			b.abandon(-1) // the caller has counted it already
		}
	})
	go func() {
		defer cancel()
		if err := f(bounded); !inTime() || !reply(err) {
			late(err)
			b.abandon(-1)
		}
	}()
	return answer, gone
}

// endsSoon reports whether ctx may end before a Store that does not answer is given up:
// such a request is better off with the share than as a probe.
func endsSoon(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) <= storeTime
}

// admit reports whether the Store may be asked now, and whether that is a probe.
func (b *breaker) admit(now time.Time) (ok, probing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned >= maxAbandoned || now.Before(b.probe) {
		return false, false
	}
	if probing = !b.probe.IsZero(); probing {
		b.probe = now.Add(probeEvery)
	}
	return true, probing
}

// judge opens or closes the breaker, by a call's end.
func (b *breaker) judge(err error) {
	b.mu.Lock()
	b.probe = time.Time{}
	if failed(err) {
		b.probe = time.Now().Add(probeEvery)
	}
	b.mu.Unlock()
	if failed(err) {
		b.report(err)
	}
}

func (b *breaker) abandon(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned += n
}

// failed reports whether err is the Store's, and not of what it was asked.
func failed(err error) bool {
	var fault *quota.ChargeError
	return err != nil && !errors.As(err, &fault)
}
