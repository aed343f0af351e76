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
	storeTime = 50 * time.Millisecond // how long a Store may take to answer
	probeTime = time.Second           // how long a Store that failed is left alone
	mostLate  = 16                    // calls left behind with which it is left alone, too
)

var (
	errLate = fmt.Errorf("pace: the Store did not answer within %v", storeTime)
	errDown = errors.New("pace: the Store is left alone because it failed")
)

// A guard keeps a Store that fails, or does not answer, from holding requests
// up: only one call a second asks it then whether it has recovered, and a call
// that has not ended in time, whatever its context says, is left behind.
type guard struct {
	trusted bool        // the Store is in this process's memory: there is nothing to guard against
	report  func(error) // is told of each call that failed

	mu    sync.Mutex // guards all below
	probe time.Time  // when a Store that failed may be asked again; zero if it works
	late  int        // calls that were left behind and have not ended yet
}

// call calls f, and returns what it does, or errDown if the Store is to be left
// alone. It returns after storeTime at the latest, or when ctx ends; the call
// goes on without it, so that the Store is judged by its own time and not by
// the caller's. What f returns later than that is given to late instead.
func (g *guard) call(ctx context.Context, f func(context.Context) error, late func(error)) error {
	if g.trusted {
		return f(ctx)
	}
	ok, probing := g.admits(time.Now())
	if !ok {
		return errDown
	}
	answer, left := g.start(context.WithoutCancel(ctx), f, late)
	if probing && endsSoon(ctx) {
		g.leave(+1)
		close(left)
		return errDown
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		g.leave(+1)
		close(left)
		return context.Cause(ctx)
	}
}

// start calls f in a goroutine of its own. The first of what it returns and
// errLate is the Store's verdict, and the answer to a caller that has not left.
func (g *guard) start(ctx context.Context, f func(context.Context) error, late func(error)) (<-chan error, chan<- struct{}) {
	answer, left := make(chan error), make(chan struct{})
	tell := func(err error) bool {
		g.judge(err)
		select {
		case answer <- err:
			return true
		case <-left:
			return false
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, storeTime, errLate)
	inTime := context.AfterFunc(bounded, func() {
		g.leave(+1)
		if !tell(errLate) {
			g.leave(-1) // the caller left it behind before
		}
	})
	go func() {
		defer cancel()
		if err := f(bounded); !inTime() || !tell(err) {
			late(err)
			g.leave(-1)
		}
	}()
	return answer, left
}

// endsSoon reports whether ctx may end before a Store that does not answer is
// given up: then its share is better for a request than to ask for the others.
func endsSoon(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) <= storeTime
}

// admits reports whether the Store may be asked now, and whether that is to see
// if it has recovered.
func (g *guard) admits(now time.Time) (ok, probing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.late >= mostLate || now.Before(g.probe) {
		return false, false
	}
	if probing = !g.probe.IsZero(); probing {
		g.probe = now.Add(probeTime)
	}
	return true, probing
}

// judge decides from a call's end whether the Store works.
func (g *guard) judge(err error) {
	g.mu.Lock()
	g.probe = time.Time{}
	if failed(err) {
		g.probe = time.Now().Add(probeTime)
	}
	g.mu.Unlock()
	if failed(err) {
		g.report(err)
	}
}

func (g *guard) leave(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late += n
}

// failed reports whether err speaks of the Store, not of what it was asked.
func failed(err error) bool {
	var fault *quota.ChargeError
	return err != nil && !errors.As(err, &fault)
}
