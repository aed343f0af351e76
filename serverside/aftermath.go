package serverside

import (
	"context"
	"net/http"

	"github.com/heedhttp/heed/quota"
)

// serve has h serve the request, and corrects its charges by what it is answered.
func (e *escort) serve(h http.Handler) {
	if !e.follows() {
		h.ServeHTTP(e.w, e.r)
		return
	}
	w, seen := watch(e.w, e.answered)
	returned := false
	defer func() {
		switch {
		case seen.status != 0:
		case returned:
			seen.see(http.StatusOK)
		default:
			seen.see(http.StatusInternalServerError)
		}
		e.settle(seen.status)
	}()
	h.ServeHTTP(w, e.r)
	returned = true
}

// follows reports whether a rule wants to know what the request is answered.
func (e *escort) follows() bool {
	for _, x := range e.extras {
		if x.rule.settle != nil || x.rule.penalty != nil && (x.rule.penalty.Strike != nil || x.rule.penalty.Pardon != nil) {
			return true
		}
	}
	return false
}

// response is what the request was answered, as x sees it.
func (e *escort) response(x extra, status int) Response {
	return Response{Request: e.r, Status: status, Header: e.w.Header(), Cost: x.cost}
}

// answered counts strikes, before the header is written.
func (e *escort) answered(status int) {
	for _, x := range e.extras {
		if p := x.rule.penalty; p != nil && p.Strike != nil && p.Strike(e.response(x, status)) {
			e.strike(x)
		}
	}
}

// refused counts denials that are strikes, before they are written.
func (e *escort) refused(denials *trial) {
	for _, x := range e.extras {
		if p := x.rule.penalty; p != nil && p.Strike == nil && denials.isStrikeOf(x.rule) {
			e.strike(x)
		}
	}
}

// isStrikeOf reports whether t's policies are r's, and none of them its penalty:
// who is kept out already and asks again does not make it worse.
func (t *trial) isStrikeOf(r *rule) (is bool) {
	for _, p := range t.policies {
		if p.rule == r && p.hidden {
			return false
		}
		is = is || p.rule == r
	}
	return is
}

// strike counts one, and does what it leads to.
func (e *escort) strike(x extra) {
	p := x.rule.penalty
	d, ok := e.take(x, p.strikes)
	if !ok || d.Allowed && d.Remaining > 0 {
		return
	}
	if p.First > 0 {
		e.penalize(x)
	}
	if p.OnViolations != nil {
		p.OnViolations(e.w, e.r)
	}
}

// penalize keeps x's key out: the bucket that every request of it takes a unit from
// goes into debt. Its strikes stay as many as they are until the penalty ends.
func (e *escort) penalize(x extra) {
	p := x.rule.penalty
	d, ok := e.take(x, p.counted)
	if !ok {
		return
	}
	lasts := p.lasts(mostPenalties - d.Remaining)
	e.correct(x,
		x.charge(p.debt.limit, -everything), x.charge(p.debt.limit, lasts.Microseconds()+slack-1),
		x.charge(p.strikes, ceil(lasts, p.perStrike())),
	)
	penalized := about(Penalized, x.rule, x.key)
	penalized.Wait = lasts
	e.Audit(penalized)
}

// settle corrects what the request was charged by what it has cost, and pardons.
func (e *escort) settle(status int) {
	for _, x := range e.extras {
		var charges []quota.Charge
		if x.rule.settle != nil && e.outcome == admitted {
			charges = e.trial.difference(x, x.rule.settle(e.response(x, status))-x.cost)
		}
		if p := x.rule.penalty; p != nil && p.Pardon != nil && p.Pardon(e.response(x, status)) {
			charges = e.trial.pardon(x)
		}
		if len(charges) > 0 {
			e.correct(x, charges...)
		}
	}
}

// difference are n units more, or less, for each policy of x that was charged.
func (t *trial) difference(x extra, n int64) (charges []quota.Charge) {
	for i, p := range t.policies {
		if n != 0 && p.rule == x.rule && !p.hidden && t.decisions[i].Allowed {
			c := t.charges[i]
			c.N, c.At = n, t.decisions[i].At
			charges = append(charges, c)
		}
	}
	return charges
}

// pardon is all that x's key may owe to its rule.
func (t *trial) pardon(x extra) (charges []quota.Charge) {
	for i, p := range t.policies {
		if p.rule == x.rule && !p.hidden {
			c := t.charges[i]
			c.N = -everything
			charges = append(charges, c)
		}
	}
	for _, limit := range x.rule.penalty.limits() {
		charges = append(charges, x.charge(limit, -everything))
	}
	return charges
}

func (x extra) charge(limit *quota.Limit, n int64) quota.Charge {
	return quota.Charge{Key: x.key, Limit: limit, N: n, DryRun: x.rule.dryRun}
}

// counts returns what the request was counted in, or nil if that is remote.
func (e *escort) counts() *quota.Memory {
	if e.local {
		return &e.limiter.local
	}
	return e.memory
}

// take takes a unit of x's.
func (e *escort) take(x extra, limit *quota.Limit) (quota.Decision, bool) {
	charge := x.charge(limit, 1)
	charge.DryRun = false // one that did not fit would not be told from one that did
	if m := e.counts(); m != nil {
		decisions, err := m.Take(context.Background(), nil, charge)
		return decisions[0], err == nil
	}
	decisions, err := e.remote.take(e.r.Context(), []quota.Charge{charge})
	if err != nil {
		e.auditFailure(x.rule, x.key, err)
		return quota.Decision{}, false
	}
	return decisions[0], true
}

// correct settles charges. The response waits for it, so that whoever has it finds
// its charges corrected. If that fails they stay as they are, which is to the
// client's disadvantage at most.
func (e *escort) correct(x extra, charges ...quota.Charge) {
	var err error
	if m := e.counts(); m != nil {
		err = m.Settle(context.Background(), charges...)
	} else {
		err = e.remote.settle(e.r.Context(), charges)
	}
	if err != nil {
		e.auditFailure(x.rule, x.key, err)
	}
}
