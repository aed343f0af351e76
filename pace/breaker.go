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
	storeTime    = 50 * time.Millisecond // for a Store to answer
	probeEvery   = time.Second           // between probes of a Store that failed
	maxAbandoned = 16                    // calls that hang before the Store is left alone
)

var (
	errLate = fmt.Errorf("did not answer within %v", storeTime)
	errOpen = errors.New("pace: the Store failed and is not called until its next probe")
)

// A breaker stops a Store that fails or hangs from delaying requests. After a failed call
// it is open: then one call a second probes the Store. A call that takes too long is
// abandoned, whatever its context says.
type breaker struct {
	trusted bool        // the Store is in this process's memory and cannot fail
	report  func(error) // called with errors of the Store, twice a second at most

	mu        sync.Mutex // guards all below
	probe     time.Time  // when to probe a Store that failed; zero if it works
	silent    time.Time  // until when no error is reported: many calls fail at once
	abandoned int        // abandoned calls that have not returned
}

// call calls f and returns its error, or errOpen if the breaker is open. It returns after
// storeTime at the latest, or when ctx ends. f then goes on, and its error goes to late:
// so the Store is judged by its own time, not by the caller's.
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

// start calls f in a new goroutine. The answer is f's error, or errLate if f is too slow,
// and sets the breaker. The caller closes gone to stop waiting for the answer.
func (b *breaker) start(
	ctx context.Context, f func(context.Context) error, late func(error),
) (<-chan error, chan<- struct{}) {
	answer, gone := make(chan error), make(chan struct{})
	reply := func(err error) bool {
		b.record(err)
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
			b.abandon(-1) // the caller counted it already
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

// endsSoon reports whether ctx may end before storeTime. Such a request uses the share at
// once instead of probing.
func endsSoon(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) <= storeTime
}

// admit reports whether the Store may be called now, and whether the call is a probe.
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

// record sets the breaker by the outcome of a call.
func (b *breaker) record(err error) {
	b.mu.Lock()
	b.probe = time.Time{}
	report := false
	if failed(err) {
		now := time.Now()
		b.probe = now.Add(probeEvery)
		if report = !now.Before(b.silent); report {
			b.silent = now.Add(probeEvery / 2)
		}
	}
	b.mu.Unlock()
	if report {
		b.report(err)
	}
}

func (b *breaker) abandon(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned += n
}

// failed reports whether err means that the Store failed, rather than that the charge was
// invalid.
func failed(err error) bool {
	var fault *quota.ChargeError
	return err != nil && !errors.As(err, &fault)
}
