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
// it. When mostLeft are left behind, or mostCalls under way, the Store is not
// asked again until one comes back: a Store that hangs must not gather
// goroutines, nor be waited for again and again.
type remote struct {
	store   quota.Store
	timeout time.Duration
	calls   calls
}

// calls are those of a Store or a Gate that are under way.
type calls struct {
	all     atomic.Int64
	waiting atomic.Int64 // requests that wait for one of them
}

// begin reports whether there may be one more, for which a request waits.
func (c *calls) begin() bool {
	c.waiting.Add(1)
	if all := c.all.Add(1); all > mostCalls || all-c.waiting.Load() >= mostLeft {
		c.all.Add(-1)
		c.waiting.Add(-1)
		return false
	}
	return true
}

// waited is that a request waits no longer.
func (c *calls) waited() { c.waiting.Add(-1) }

// ended is that a call is not under way any longer.
func (c *calls) ended() { c.all.Add(-1) }

const (
	mostLeft  = 128
	mostCalls = 2048
)

var (
	errOverdue = errors.New("serverside: too many calls of the Store are under way for it to be asked again")
	errGone    = errors.New("serverside: the Store ended the goroutine that asked it")
)

func newRemote(store quota.Store, timeout time.Duration) *remote {
	return &remote{store: store, timeout: timeout}
}

// An answer is what a Store returns from Take: decisions, or an error.
type answer struct {
	decisions []quota.Decision
	err       error
}

// take has the Store decide.
func (m *remote) take(ctx context.Context, charges []quota.Charge) ([]quota.Decision, error) {
	copied := slices.Clone(charges)
	a := m.call(ctx, func(ctx context.Context) answer { return m.ask(ctx, copied) })
	return a.decisions, a.err
}

// settle has the Store, which is a quota.Settler, correct charges.
func (m *remote) settle(ctx context.Context, charges []quota.Charge) error {
	settler := m.store.(quota.Settler)
	return m.call(ctx, func(ctx context.Context) answer { return answer{err: settler.Settle(ctx, charges...)} }).err
}

// call has the Store do something.
//
// It does not end with the request: a client that went away after its request
// was counted has used its quota, and one that could have its request uncounted
// by going away would have no limit.
func (m *remote) call(ctx context.Context, do func(context.Context) answer) answer {
	if !m.calls.begin() {
		return answer{err: errOverdue}
	}
	defer m.calls.waited()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
	defer cancel()
	done := make(chan answer, 1)
	go m.run(ctx, do, done)
	select {
	case a := <-done:
		return a
	case <-ctx.Done():
		return answer{err: fmt.Errorf("serverside: the Store did not answer within %v", m.timeout)}
	}
}

// run does it, and turns a panic into an error.
func (m *remote) run(ctx context.Context, do func(context.Context) answer, done chan<- answer) {
	a := answer{err: errGone}
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fmt.Errorf("serverside: the Store panicked: %v", p)}
		}
		m.calls.ended()
		done <- a
	}()
	a = do(ctx)
}

// ask turns whatever is no answer into an error.
func (m *remote) ask(ctx context.Context, charges []quota.Charge) (a answer) {
	a.decisions, a.err = m.store.Take(ctx, nil, charges...)
	if a.err == nil && len(a.decisions) != len(charges) {
		a.err = fmt.Errorf("serverside: the Store answered %d charges with %d decisions", len(charges), len(a.decisions))
	}
	for i := range a.decisions {
		if a.err == nil && nonsense(&a.decisions[i]) {
			a.err = fmt.Errorf("serverside: the Store's decision on charge %d makes no sense", i)
		}
	}
	return a
}

// nonsense reports that d cannot be told to anybody.
func nonsense(d *quota.Decision) bool {
	return d.Limit < 0 || d.Remaining < 0 || d.RetryAfter < 0 || d.NextAfter < 0 || d.ResetAfter < 0
}
