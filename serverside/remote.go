package serverside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A remote asks a Store that may fail in any way, for no longer than timeout.
//
// A call that is not done by then is left behind, for there is no way to stop
// it. When mostLeft are left, the Store is not asked again until one comes back:
// a Store that hangs must not gather goroutines.
type remote struct {
	store   quota.Store
	timeout time.Duration
	left    atomic.Int64 // calls nobody waits for any longer
}

const mostLeft = 128

var errOverdue = errors.New("serverside: the Store is overdue with too many calls to be asked again")

func newRemote(store quota.Store, timeout time.Duration) *remote {
	return &remote{store: store, timeout: timeout}
}

// An answer is what a Store returns from Take: decisions, or an error.
type answer struct {
	decisions []quota.Decision
	err       error
}

// take has the Store decide.
//
// It does not end with the request: a client that went away after its request
// was counted has used its quota, and one that could have its request uncounted
// by going away would have no limit.
func (m *remote) take(ctx context.Context, charges []quota.Charge) ([]quota.Decision, error) {
	if m.left.Load() >= mostLeft {
		return nil, errOverdue
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
	defer cancel()
	c := &call{remote: m, done: make(chan answer, 1)}
	go c.run(ctx, slices.Clone(charges))
	select {
	case a := <-c.done:
		return a.decisions, a.err
	case <-ctx.Done():
		c.leave()
		return nil, fmt.Errorf("serverside: the Store did not answer within %v", m.timeout)
	}
}

// A call is one Take. It is left or done, whichever comes first.
type call struct {
	*remote
	over atomic.Bool
	done chan answer
}

func (c *call) run(ctx context.Context, charges []quota.Charge) {
	a := c.ask(ctx, charges)
	if c.over.Swap(true) {
		c.left.Add(-1)
	}
	c.done <- a
}

func (c *call) leave() {
	c.left.Add(1)
	if c.over.Swap(true) {
		c.left.Add(-1) // it came back meanwhile
	}
}

// ask turns whatever is no answer into an error.
func (c *call) ask(ctx context.Context, charges []quota.Charge) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fmt.Errorf("serverside: the Store panicked: %v", p)}
		}
	}()
	a.decisions, a.err = c.store.Take(ctx, nil, charges...)
	switch {
	case a.err != nil:
		return answer{err: a.err}
	case len(a.decisions) != len(charges):
		return answer{err: fmt.Errorf("serverside: the Store answered %d charges with %d decisions", len(charges), len(a.decisions))}
	default:
		return a
	}
}
