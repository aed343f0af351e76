package serverside

import (
	"context"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
)

// A gates counts requests in flight.
type gates struct {
	gate   quota.Gate
	memory *quota.Memory // gate, if it is a Memory
	local  *quota.Memory // counts while gate fails, for FailLocal
	caller remote.Caller
}

func newGates(cfg *Config, store *counter) *gates {
	g := &gates{gate: cfg.Gate, local: cfg.Memory}
	g.caller.Name, g.caller.Timeout = "serverside: the Gate", store.caller.Timeout
	if g.gate == nil && store.memory != nil {
		g.gate = store.memory
	}
	if g.gate == nil {
		g.gate, _ = cfg.Store.(quota.Gate)
	}
	if g.gate == nil {
		g.gate = cfg.Memory
	}
	g.memory, _ = g.gate.(*quota.Memory)
	return g
}

// acquire takes one of limit places for key. It returns nil if all are taken.
func (g *gates) acquire(ctx context.Context, key string, limit int64) (*quota.Hold, error) {
	if g.memory != nil {
		return acquireIn(ctx, g.memory, key, limit)
	}
	hold, err := remote.Do(context.WithoutCancel(ctx), &g.caller, func(ctx context.Context) (*quota.Hold, error) {
		// The Hold outlives the call.
		kept, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, cancel)
		hold, err := acquireIn(kept, g.gate, key, limit)
		stop()
		return hold, err
	}, (*quota.Hold).Release)
	return hold, storeError(err)
}

func acquireIn(ctx context.Context, g quota.Gate, key string, limit int64) (*quota.Hold, error) {
	hold, _, err := g.Acquire(ctx, key, limit, 1)
	return hold, err
}

// inFlightKey returns the Gate's key for the requests in flight that r charges to key.
func (r *rule) inFlightKey(key string) string {
	return string(appendNetstring(nil, r.name)) + key
}

// hold takes a place for m, and reports whether the request may be served.
func (c *check) hold(all matched, m match) bool {
	r := m.rule
	key := r.inFlightKey(m.key)
	hold, err := c.gates.acquire(c.r.Context(), key, r.inFlight)
	if err != nil {
		c.auditFailure(r, m.key, err)
		switch mode := r.modeAfter(err); mode {
		case FailOpen:
			c.uncounted = true
			return true
		case FailClosed:
			c.observeRefusal(r, m.key)
			c.refuse(c.outageDenial(r))
			return false
		}
		hold, _ = acquireIn(c.r.Context(), c.gates.local, key, r.inFlight)
	} else if len(all.charges) == 0 { // otherwise the Store's decision is still to come
		c.auditSuccess()
	}
	switch {
	case hold != nil:
		c.holds = append(c.holds, hold)
		return true
	case r.dryRun:
		c.auditInFlight(WouldDeny, m)
		return true
	default:
		c.auditInFlight(Denied, m)
		c.observeRefusal(r, m.key)
		c.refuse(inFlightDenial(r))
		return false
	}
}

// modeAfter returns the mode that applies after err: FailLocal if only this process is late.
func (r *rule) modeAfter(err error) FailureMode {
	if isLate(err) {
		return FailLocal
	}
	return r.mode
}
