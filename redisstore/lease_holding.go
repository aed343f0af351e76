package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A holding is what a Lease holds for one Key.
type holding struct {
	lease *Lease
	key   string

	mu      sync.Mutex // guards the rest
	pools   []*pool
	wants   []*want // that Redis is to be asked for, in their order
	flying  bool    // somebody asks
	failed  bool    // the last time, in vain
	ended   bool    // nothing is to be held any more
	timer   *time.Timer
	holders holders

	underWay int        // flights and refunds
	landing  *sync.Cond // one is over
}

// A want is a call that must ask Redis.
type want struct {
	errand
	done chan struct{} // closed when it is answered
	err  error

	// Guarded by the holding's mu.
	gone  bool // nobody waits for the answer
	waits bool // for what a flight brings
	tried bool // that once

	// If it was answered by what is held, how long that must wait, and until when.
	held bool
	wait time.Duration
	at   int64
}

func newHolding(l *Lease, key string) *holding {
	h := &holding{lease: l, key: key}
	h.landing = sync.NewCond(&h.mu)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(horizon, h.tick)
	return h
}

// pool returns that of limit.
func (h *holding) pool(limit *quota.Limit) *pool {
	for _, p := range h.pools {
		if p.limit == limit {
			return p
		}
	}
	p := &pool{limit: limit}
	h.pools = append(h.pools, p)
	return p
}

// take is Lease.Take.
func (h *holding) take(ctx context.Context, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
	h.mu.Lock()
	now := monotonic()
	_, _, held := h.spend(charges, 0, now)
	if held || h.hopeless(toTake, charges, 0, now) {
		dst = h.decisions(dst, charges, held, now)
		h.mu.Unlock()
		return dst, nil
	}
	w := h.ask(errand{verb: toTake}, charges)
	h.mu.Unlock()
	if err := h.await(ctx, w); err != nil {
		return dst, err
	}
	if w.held {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.decisions(dst, charges, true, monotonic()), nil
	}
	for i := range w.charges {
		dst = append(dst, w.decision(i))
	}
	return dst, nil
}

// reserve is Lease.Reserve.
func (h *holding) reserve(ctx context.Context, max time.Duration, charges []quota.Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	h.mu.Lock()
	now := monotonic()
	wait, micros, held := h.spend(charges, max, now)
	if held {
		h.mu.Unlock()
		return wait, time.UnixMicro(micros), true, nil
	}
	if h.hopeless(toReserve, charges, max, now) {
		wait, at = h.refusal(charges, now)
		h.mu.Unlock()
		return wait, at, false, nil
	}
	w := h.ask(errand{verb: toReserve, max: max}, charges)
	h.mu.Unlock()
	if err := h.await(ctx, w); err != nil {
		return 0, time.Time{}, false, err
	}
	if w.held {
		return w.wait, time.UnixMicro(w.at), true, nil
	}
	wait, at = w.errand.wait(), time.UnixMicro(w.now)
	if w.allowed {
		at = at.Add(wait)
	}
	return wait, at, w.allowed, nil
}

// spend uses units that are held for all charges, if they may be used within max.
func (h *holding) spend(charges []quota.Charge, max, now time.Duration) (wait time.Duration, at int64, held bool) {
	for i := range charges {
		w, t, ok := h.pool(charges[i].Limit).find(charges[i].Units(), now)
		if !ok || w > max {
			return 0, 0, false
		}
		if w >= wait {
			wait, at = w, t
		}
	}
	for i := range charges {
		p := h.pool(charges[i].Limit)
		p.spend(charges[i].Units())
		if !h.flying && !h.failed && p.low(now) && p.ahead(h.holders.n, now) > 0 {
			h.fly()
		}
	}
	return wait, at, true
}

// hopeless reports whether Redis is known to deny charges.
func (h *holding) hopeless(v verb, charges []quota.Charge, max, now time.Duration) bool {
	for i := range charges {
		c := &charges[i]
		if !h.pool(c.Limit).state.hopeful(c.Limit, v, c.Units(), max, now) {
			return true
		}
	}
	return false
}

// decisions appends those on charges, which were made or are denied, by what is known.
func (h *holding) decisions(dst []quota.Decision, charges []quota.Charge, made bool, now time.Duration) []quota.Decision {
	for i := range charges {
		p := h.pool(charges[i].Limit)
		b, at := p.state.now(p.limit, now)
		d := quota.Judge(charges, i, b, b, at)
		if made {
			d = p.limit.Describe(p.limit.Settle(b, -p.left, 0, at), at) // without what is held here
			d.Allowed = true
		} else if wait, _, ok := p.find(charges[i].Units(), now); ok && !d.Allowed {
			d.RetryAfter = min(d.RetryAfter, wait)
		}
		d.At = time.UnixMicro(at)
		dst = append(dst, d)
	}
	return dst
}

// refusal is what Reserve returns of charges that Redis is known to deny.
func (h *holding) refusal(charges []quota.Charge, now time.Duration) (wait time.Duration, at time.Time) {
	for i := range charges {
		l := charges[i].Limit
		b, t := h.pool(l).state.now(l, now)
		_, w, _ := l.TryWithin(b, charges[i].Units(), t, 0)
		wait, at = max(wait, w), time.UnixMicro(t)
	}
	return wait, at
}

// ask has charges asked for: like those of an errand.
func (h *holding) ask(like errand, charges []quota.Charge) *want {
	like.charges = slices.Clone(charges) // which may be answered after the caller has gone
	w := &want{errand: like, done: make(chan struct{})}
	h.wants = append(h.wants, w)
	for i := range charges {
		p := h.pool(charges[i].Limit)
		p.spent += charges[i].Units()
		p.grow(h.lease.max())
	}
	h.fly()
	return w
}

// await waits for the answer to w, unless ctx ends: then w is withdrawn, or what it
// took goes back.
func (h *holding) await(ctx context.Context, w *want) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	default:
	}
	w.gone = true
	h.wants = slices.DeleteFunc(h.wants, func(other *want) bool { return other == w })
	return ctx.Err()
}

// unknow forgets what is known of the buckets in Redis.
func (h *holding) unknow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pools {
		p.state.stale = true
	}
}
