package serverside

import (
	"context"
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
)

// gates count what is in flight.
type gates struct {
	gate    quota.Gate
	local   *quota.Memory // counts while gate fails, for FailLocal
	timeout time.Duration
	calls   calls
}

func newGates(p *plan, local *quota.Memory, timeout time.Duration) *gates {
	g := &gates{gate: p.Gate, local: local, timeout: timeout}
	if g.gate == nil && p.memory != nil {
		g.gate = p.memory
	}
	if g.gate == nil {
		g.gate, _ = p.Store.(quota.Gate)
	}
	if g.gate == nil {
		g.gate = local
	}
	return g
}

// A place is what one rule holds for a request while it is served.
type place struct {
	hold     *quota.Hold
	decision quota.Decision
	err      error
	end      context.CancelFunc // of the context that the Gate was asked with; may be nil
}

// release gives the place back.
func (p *place) release() {
	p.hold.Release()
	if p.end != nil {
		p.end() // not before, for it bounds Release too
	}
}

// acquire takes a place among limit for key, or waits no longer than timeout.
func (g *gates) acquire(ctx context.Context, key string, limit int64) place {
	if m, ok := g.gate.(*quota.Memory); ok {
		return acquireIn(ctx, m, key, limit)
	}
	if !g.calls.begin() {
		return place{err: errOverdue}
	}
	defer g.calls.waited()
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	taken, overdue := make(chan place), time.NewTimer(g.timeout)
	defer overdue.Stop()
	go func() {
		defer g.calls.ended()
		p := g.ask(ctx, key, limit)
		p.end = end
		select {
		case taken <- p:
		case <-ctx.Done(): // nobody waits for it any longer
			p.release()
		}
	}()
	select {
	case p := <-taken:
		return p
	case <-overdue.C:
		end()
		return place{err: fmt.Errorf("serverside: the Gate did not answer within %v", g.timeout)}
	}
}

// ask turns a panic into an error.
func (g *gates) ask(ctx context.Context, key string, limit int64) (p place) {
	defer func() {
		if fault := recover(); fault != nil {
			p.err = fmt.Errorf("serverside: the Gate panicked: %v", fault)
		}
	}()
	return acquireIn(ctx, g.gate, key, limit)
}

func acquireIn(ctx context.Context, g quota.Gate, key string, limit int64) place {
	hold, decision, err := g.Acquire(ctx, key, limit, 1)
	return place{hold: hold, decision: decision, err: err}
}

// inFlightKey is the Gate's key for what key has in flight of r.
func (r *rule) inFlightKey(key string) string {
	return string(appendNetstring(nil, r.name)) + key
}
