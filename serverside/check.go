package serverside

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A check decides on one request, in steps: match finds the rules that apply and what they
// are charged to, take has the Store decide, and respond tells the client.
type check struct {
	*compiled
	w        http.ResponseWriter
	r        *http.Request
	progress *progress
	began    time.Time // if somebody observes

	fallback    string // what Config.Key says
	hasFallback bool   // it was asked

	entry *rule         // of the allow-list, if it matches
	holds []*quota.Hold // places in flight

	uncounted bool    // the Store is gone, and the request is admitted all the same
	lost      *policy // the first that it was not counted by
	local     bool    // it was counted in this process, because the Store failed
}

// A matched is what a request matches, while it is decided on.
type matched struct {
	matches []match   // the rules that apply
	charges []charged // to each of their policies

	asked     []quota.Charge   // room for what the Store is asked
	decisions []quota.Decision // and for what a Memory answers
}

// matchedPool saves an allocation of a kilobyte for each request.
var matchedPool = sync.Pool{New: func() any { return new(matched) }}

// free gives all back, without what it leads to.
func (all *matched) free() {
	clear(all.matches)
	clear(all.charges)
	clear(all.asked)
	all.matches, all.charges, all.asked = all.matches[:0], all.charges[:0], all.asked[:0]
	matchedPool.Put(all)
}

// A match is a rule that applies to the request, with the Store's key and the units that
// it charges.
type match struct {
	rule *rule
	key  string
	cost int64
}

// A charged is a charge to one policy, and what was decided on it.
type charged struct {
	policy   *policy
	charge   quota.Charge
	decision quota.Decision
}

// admits reports whether the rules of the stages from from to until admit the request. If
// they do, its response has its fields; if not, the response is written.
func (c *check) admits(all *matched, from, until Stage) bool {
	if c.Observe != nil {
		c.began = time.Now()
	}
	if c.entry = c.allowed(c.r); c.entry != nil {
		c.progress.passes.Store(true)
		return c.admittedTo(all, []*rule{c.entry}, nil)
	}
	return c.admittedTo(all, between(c.cheap, from, until), between(c.dear, from, until))
}

// admittedTo reports whether the request is admitted to all of the rules: first to those
// that are cheap to ask.
func (c *check) admittedTo(all *matched, cheap, dear []*rule) bool {
	if !c.step(all, cheap) {
		return false
	}
	made := all.charges
	if len(dear) > 0 && !c.step(all, dear) {
		c.giveBack(made)
		return false
	}
	return len(all.matches) == 0 || c.respond(all)
}

// step reports whether the request is admitted to those of rules that apply, in one
// decision. If not, the response is written.
func (c *check) step(all *matched, rules []*rule) bool {
	matched, charged := len(all.matches), len(all.charges)
	if !c.match(all, rules) {
		return false
	}
	for _, m := range all.matches[matched:] {
		if m.rule.inFlight > 0 && !c.hold(all, m) {
			return false
		}
	}
	if len(all.charges) == charged {
		return true
	}
	return c.take(all, charged) && !c.isDenied(all, charged)
}

// match finds those of rules that apply, and makes a charge for each of their policies. It
// reports whether it is known what to charge: if not, the response is written.
func (c *check) match(all *matched, rules []*rule) bool {
	target := target{request: c.r}
	for _, r := range rules {
		if !r.matches(&target) {
			continue
		}
		m := match{r, c.keyOf(r), r.units(c.r)}
		if !c.isReadable(all, m) {
			return false
		}
		if l := r.login; l != nil && !l.byNetwork && c.knowsNetwork(l) {
			continue
		}
		all.matches = append(all.matches, m)
		for _, p := range c.policiesOf(m) {
			all.charge(p, m.key, m.cost)
		}
		if p := r.penalty; p != nil && p.First > 0 {
			all.charge(p.debt, m.key, 1)
		}
		if c.audited {
			c.auditForwarding(r, m.key)
		}
	}
	return true
}

// matches reports whether r is about a request.
func (r *rule) matches(t *target) bool {
	return (r.matcher == nil || r.matcher.matches(t)) && (r.applies == nil || r.applies(t.request))
}

// policiesOf are the policies that hold for m.
func (c *check) policiesOf(m match) []*policy {
	if m.rule.limits == nil {
		return m.rule.policies
	}
	return m.rule.limits.of(c, m).policies
}

// charge adds a charge to p.
func (all *matched) charge(p *policy, key string, n int64) {
	all.charges = append(all.charges, charged{policy: p, charge: quota.Charge{Key: key, Limit: p.limit, N: n, DryRun: p.rule.dryRun}})
}

// units is what req costs. Nothing is free, and nothing pays back.
func (r *rule) units(req *http.Request) int64 {
	if r.cost == nil {
		return 1
	}
	return max(1, r.cost(req))
}

// isReadable reports whether the request says what m's key is, if that is to be read from
// its body, or is an account. If not, the response is written.
func (c *check) isReadable(all *matched, m match) bool {
	r := m.rule
	if b, ok := c.r.Body.(*body); ok && known(r.key).body {
		switch {
		case b.tooLong:
			c.refuseUnread(all, m, http.StatusRequestEntityTooLarge)
			return false
		case b.doubt:
			c.refuseUnread(all, m, http.StatusBadRequest)
			return false
		}
	}
	if r.login != nil && r.login.account.Of(c.r) == "" {
		c.refuseUnread(all, m, http.StatusBadRequest)
		return false
	}
	return true
}

// take has the Store decide on the charges from an index on, and reports whether there is
// a decision, or none is needed. If not, the response is written.
func (c *check) take(all *matched, from int) bool {
	all.asked = all.asked[:0]
	for i := range all.charges[from:] {
		all.asked = append(all.asked, all.charges[from+i].charge)
	}
	if m := c.store.memory; m != nil {
		all.takeIn(m, from)
		return true
	}
	decisions, err := c.store.take(c.r.Context(), all.asked)
	if err != nil {
		return c.takeWithout(all, from, err)
	}
	for i := range decisions {
		all.charges[from+i].decision = decisions[i]
	}
	c.auditSuccess()
	c.remember(all.charges[from:])
	return true
}

// takeIn has m decide on what is asked, which are the charges from an index on.
func (all *matched) takeIn(m *quota.Memory, from int) {
	all.decisions, _ = m.Take(context.Background(), all.decisions[:0], all.asked...) // fails only on charges that compile does not make
	for i := range all.decisions {
		all.charges[from+i].decision = all.decisions[i]
	}
}

// takeWithout does, for the charges from an index on, what is to be done without the
// Store.
func (c *check) takeWithout(all *matched, from int, err error) bool {
	strictest := all.charges[from]
	for _, other := range all.charges[from:] {
		if other.policy.rule.modeAfter(err).severity() > strictest.policy.rule.modeAfter(err).severity() {
			strictest = other
		}
	}
	failing := strictest.policy.rule
	c.auditFailure(failing, strictest.charge.Key, err)
	switch failing.modeAfter(err) {
	case FailOpen:
		c.uncounted, c.lost = true, all.charges[from].policy
		all.charges = all.charges[:from]
		return true
	case FailClosed:
		c.observe(all, Refused)
		c.refuse(c.outageOf(failing))
		return false
	}
	kept := all.charges[:from]
	all.asked = all.asked[:0]
	for _, each := range all.charges[from:] {
		if each.policy.rule.modeAfter(err) == FailLocal {
			kept, all.asked = append(kept, each), append(all.asked, each.charge)
		}
	}
	all.charges, c.local = kept, true
	all.takeIn(c.Memory, from)
	return true
}

// remember charges this process's memory with what the Store has admitted, so that an
// outage does not begin with a burst of this process's own.
func (c *check) remember(made []charged) {
	for i := range made {
		if made[i].denies() {
			return // it was charged nothing
		}
	}
	for i := range made {
		if made[i].policy.rule.mode == FailLocal {
			charge := made[i].charge
			charge.N = charge.Units()
			_ = c.Memory.Settle(context.Background(), charge) // fails only on charges that compile does not make
		}
	}
}

// denies reports whether x is a reason to deny the request.
func (x *charged) denies() bool { return !x.decision.Allowed && !x.charge.DryRun }

// giveBack gives back what an earlier step was charged for a request that a later one
// denied.
func (c *check) giveBack(made []charged) {
	var charges []quota.Charge
	for i := range made {
		if charge := made[i].charge; made[i].decision.Allowed {
			charge.N, charge.At = -charge.Units(), made[i].decision.At
			charges = append(charges, charge)
		}
	}
	if len(charges) > 0 && c.store.settles() {
		s := &settlement{compiled: c.compiled, w: c.w, r: c.r, local: c.local}
		s.correct(match{rule: made[0].policy.rule, key: made[0].charge.Key}, charges...)
	}
}
