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

// A flight is one script: what calls want, and then what is taken for others, and ahead.
type flight struct {
	wants     []*want // that are asked for one by one
	waiting   []*want // that may be answered by what the grants bring
	grants    []*grant
	count     *errand // of those who hold; nil if it is not due
	errands   []*errand
	sent, got time.Duration
	err       error
}

// A grant is units that are taken for p.
type grant struct {
	errand
	p *pool
}

// depart returns what Redis is to be asked next, or nil.
//
// Calls are asked for together where all of them can be expected to fit: in one
// charge, which also brings what is taken ahead. Who gets nothing of that is asked
// for by himself next.
func (h *holding) depart() *flight {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, now := new(flight), monotonic()
	for _, p := range h.pools {
		if !h.ended && !h.failed {
			h.provide(f, p, now)
		}
	}
	h.wants = slices.DeleteFunc(h.wants, func(w *want) bool {
		if w.waits || len(f.wants) == maxWants {
			return false
		}
		f.wants = append(f.wants, w)
		return true
	})
	if len(f.wants)+len(f.grants) == 0 {
		h.flying = false
		return nil
	}
	f.load(h, now)
	return f
}

// provide has f bring what is wanted of p, if it can be expected to, and what is to be
// held beyond that.
func (h *holding) provide(f *flight, p *pool, now time.Duration) {
	first := len(f.waiting)
	n, ahead := int64(0), p.ahead(h.holders.n, now)
	for _, w := range h.wants {
		if w.charges[0].Limit == p.limit && len(w.charges) == 1 {
			if w.tried {
				n = 0 // their turn is first, and it is not known what they leave
				break
			}
			f.waiting, n = append(f.waiting, w), n+w.charges[0].Units()
		}
	}
	if n < 2 || ahead == 0 || n+ahead > p.room(now) {
		f.waiting, n = f.waiting[:first], 0
	}
	for _, w := range f.waiting[first:] {
		w.waits, w.tried = true, true
	}
	if n+ahead > 0 {
		f.grants = append(f.grants, h.grant(p, n+ahead))
	}
}

// load puts the errands of f in their order.
func (f *flight) load(h *holding, now time.Duration) {
	for _, w := range f.wants {
		f.errands = append(f.errands, &w.errand)
	}
	for _, g := range f.grants {
		f.errands = append(f.errands, &g.errand)
	}
	if len(f.grants) > 0 && h.holders.due(now) {
		f.count = h.holders.count(h.key, now)
		f.errands = append(f.errands, f.count)
	}
}

// grant is that of n units for p: all or none. If there are not so many, the answer
// tells how many there are, and the next flight asks for no more.
func (h *holding) grant(p *pool, n int64) *grant {
	c := quota.Charge{Key: h.key, Limit: p.limit, N: n}
	return &grant{errand{verb: toReserve, max: horizon, charges: []quota.Charge{c}}, p}
}

// arrive gives everybody his answer.
func (h *holding) arrive(f *flight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range f.wants {
		h.answer(w, f)
	}
	if h.failed = f.err != nil; h.failed {
		h.fail(f)
		return
	}
	for _, w := range f.waiting {
		w.waits = false
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

// fail tells those who waited for the grants that there are none.
func (h *holding) fail(f *flight) {
	h.wants = slices.DeleteFunc(h.wants, func(w *want) bool {
		if w.waits {
			w.err = f.err
			close(w.done)
		}
		return w.waits
	})
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
