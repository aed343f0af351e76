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
	trusted bool // the Store is in this process's memory: there is nothing to guard against

	mu    sync.Mutex // guards all below
	probe time.Time  // when a Store that failed may be asked again; zero if it works
	late  int        // calls that were left behind and have not ended yet
}

// call calls f, and returns what it does, or errDown if the Store is to be left
// alone. It returns after storeTime at the latest, or when ctx ends. What f
// returns later than that is given to late instead.
func (g *guard) call(ctx context.Context, f func(context.Context) error, late func(error)) error {
	if g.trusted {
		return f(ctx)
	}
	if !g.admits(time.Now()) {
		return errDown
	}
	bounded, cancel := context.WithTimeoutCause(ctx, storeTime, errLate)
	defer cancel()
	answer := make(chan error)
	go func() {
		err := f(bounded)
		select {
		case answer <- err:
		case <-bounded.Done():
			late(err)
			g.leave(-1)
		}
	}()
	select {
	case err := <-answer:
		g.judge(ctx, err)
		return err
	case <-bounded.Done():
		g.leave(+1)
		err := context.Cause(bounded)
		g.judge(ctx, err)
		return err
	}
}

// admits reports whether the Store may be asked now.
func (g *guard) admits(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.late >= mostLate || now.Before(g.probe) {
		return false
	}
	if !g.probe.IsZero() {
		g.probe = now.Add(probeTime)
	}
	return true
}

// judge decides from an answer whether the Store works.
func (g *guard) judge(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it was not the Store that ended the call
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probe = time.Time{}
	if failed(err) {
		g.probe = time.Now().Add(probeTime)
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
