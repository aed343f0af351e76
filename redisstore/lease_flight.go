package redisstore

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// maxWants is how many calls are asked for in one script.
const maxWants = 128

// fly has somebody ask Redis, if nobody does.
func (h *holding) fly() {
	if !h.flying {
		h.flying = true
		h.underWay++
		go h.flight()
	}
}

// landed notes that something is over that was under way.
func (h *holding) landed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.underWay--
	h.landing.Broadcast()
}

// flight asks Redis until there is nothing to ask for.
func (h *holding) flight() {
	defer h.landed()
	for {
		f := h.depart()
		if f == nil {
			return
		}
		f.sent = monotonic()
		f.err = h.lease.do(context.Background(), f.errands...)
		f.got = monotonic()
		h.arrive(f)
	}
}

// A flight is one script: what calls want, and then what is taken ahead.
type flight struct {
	wants     []*want
	grants    []*grant
	count     *errand // of those who hold; nil if nothing is taken ahead
	errands   []*errand
	sent, got time.Duration
	err       error
}

// A grant is units that are taken ahead for p, if there are so many.
type grant struct {
	errand
	p *pool
}

// depart returns what Redis is to be asked next, or nil.
func (h *holding) depart() *flight {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := new(flight)
	n := min(len(h.wants), maxWants)
	f.wants = append(f.wants, h.wants[:n]...)
	h.wants = h.wants[n:]
	now := monotonic()
	for _, p := range h.pools {
		if !h.ended && !h.failed {
			f.grants = append(f.grants, h.grants(p, p.ahead(h.holders.n, now))...)
		}
	}
	if len(f.wants)+len(f.grants) == 0 {
		h.flying = false
		return nil
	}
	for _, w := range f.wants {
		f.errands = append(f.errands, &w.errand)
	}
	for _, g := range f.grants {
		f.errands = append(f.errands, &g.errand)
	}
	if len(f.grants) > 0 {
		f.count = h.holders.count(h.key, now)
		f.errands = append(f.errands, f.count)
	}
	return f
}

// grants returns those that together take n units for p, or as many as there are: each
// is half of what remains, so that what one of them does not get the next ones may.
func (h *holding) grants(p *pool, n int64) (gs []*grant) {
	for n > 0 {
		half := (n + 1) / 2
		c := quota.Charge{Key: h.key, Limit: p.limit, N: half}
		gs = append(gs, &grant{errand{verb: toReserve, max: horizon, charges: []quota.Charge{c}}, p})
		n -= half
	}
	return gs
}

// arrive gives everybody his answer.
func (h *holding) arrive(f *flight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range f.wants {
		h.answer(w, f)
	}
	if h.failed = f.err != nil; h.failed {
		return
	}
	for _, g := range f.grants {
		h.know(&g.errand, f)
		if !g.allowed {
			g.p.want-- // so that asking in vain ends
			continue
		}
		v := &g.visits[0]
		g.p.add(batch{met: v.met, wait: v.wait, at: g.now, sent: f.sent, got: f.got, n: g.charges[0].N})
	}
	if f.count != nil {
		h.holders.told(f.count)
	}
	h.serve(f.got)
}

// serve answers those who came meanwhile and for whom there is enough now.
func (h *holding) serve(now time.Duration) {
	h.wants = slices.DeleteFunc(h.wants, func(w *want) bool {
		wait, at, held := h.spend(w.charges, w.max, now)
		if held {
			w.held, w.wait, w.at = true, wait, at
			close(w.done)
		}
		return held
	})
}

// answer ends a want.
func (h *holding) answer(w *want, f *flight) {
	if w.err = f.err; w.err == nil {
		h.know(&w.errand, f)
		h.denied(w)
		if w.gone {
			h.revoke(w)
		}
	}
	close(w.done)
}

// denied has units taken ahead that were denied to w: or else whoever asks seldom would
// always come after those who have taken theirs ahead.
func (h *holding) denied(w *want) {
	for i := range w.charges {
		if v := &w.visits[i]; !v.fits {
			p := h.pool(w.charges[i].Limit)
			p.want = min(max(p.want, w.charges[i].Units()+1), h.lease.max())
		}
	}
}

// revoke gives back what w took for nobody.
func (h *holding) revoke(w *want) {
	back := w.revocation()
	if len(back.charges) == 0 {
		return
	}
	h.underWay++
	go func() {
		defer h.landed()
		h.lease.do(context.Background(), back)
	}()
}

// know notes what e told of the buckets in Redis.
func (h *holding) know(e *errand, f *flight) {
	for i := range e.charges {
		v := &e.visits[i]
		b := v.found
		if e.made(i) {
			b = v.after
		}
		h.pool(e.charges[i].Limit).state = state{bucket: b, at: e.now, sent: f.sent}
	}
}

// tick gives back what is held and will not be used, and ends the holding if nothing
// is left.
func (h *holding) tick() {
	h.mu.Lock()
	var refunds []*refund
	idle := !h.flying
	now := monotonic()
	for _, p := range h.pools {
		idle = idle && p.spent == 0
		if excess := p.tick(now, h.lease.max()); excess > 0 {
			refunds = append(refunds, h.refund(p, excess))
		}
		idle = idle && p.left == 0
	}
	h.pools = slices.DeleteFunc(h.pools, func(p *pool) bool { return p.left == 0 && p.want == 0 && !h.flying })
	if idle {
		h.ended = true
		h.lease.forget(h)
	} else if !h.ended {
		h.timer.Reset(horizon)
	}
	h.underWay++
	h.mu.Unlock()
	defer h.landed()
	_ = h.giveBack(context.Background(), refunds)
}

// A refund gives back units that were held.
type refund struct {
	errand
	units []batch
}

// refund takes the last n units from p.
func (h *holding) refund(p *pool, n int64) *refund {
	p.state.stale = true
	r := &refund{units: p.drop(n)}
	first := &r.units[0]
	at := time.UnixMicro(first.at).Add(first.moment(p.limit, first.used+1))
	c := quota.Charge{Key: h.key, Limit: p.limit, ID: "lease " + rand.Text(), At: at}
	r.errand = errand{verb: toSettle, charges: []quota.Charge{c}}
	return r
}

// giveBack has refunds made, each once: again if it is not known whether they were, as
// long as that is of any use.
func (h *holding) giveBack(ctx context.Context, refunds []*refund) error {
	for until := monotonic() + horizon; ; time.Sleep(horizon / 10) {
		var errands []*errand
		for _, r := range refunds {
			c := &r.charges[0]
			if c.N = -undrained(c.Limit, r.units, monotonic()+h.lease.Store.timeout()); c.N < 0 {
				errands = append(errands, &r.errand)
			}
		}
		if len(errands) == 0 {
			return nil
		}
		if err := h.lease.do(ctx, errands...); err == nil || ctx.Err() != nil || monotonic() > until {
			return err
		}
	}
}

// close gives back all that is held, when nothing is under way any more.
func (h *holding) close(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	h.timer.Stop()
	for h.underWay > 0 {
		h.landing.Wait()
	}
	var refunds []*refund
	now := monotonic()
	for _, p := range h.pools {
		if p.lapse(now); p.left > 0 {
			refunds = append(refunds, h.refund(p, p.left))
		}
	}
	h.mu.Unlock()
	return h.giveBack(ctx, refunds)
}
