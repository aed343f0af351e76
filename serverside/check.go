package serverside

import (
	"context"
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A check decides on one request, in three steps: match finds the rules that apply and what
// they charge, take asks the Store, and respond sets the fields. A method that reports that the
// request is not admitted has written the response.
type check struct {
	*compiled
	w        http.ResponseWriter
	r        *http.Request
	progress *progress
	began    time.Time // zero if Config.Observe is nil

	fallback    string // what Config.Key returned
	hasFallback bool   // Config.Key was called

	entry *rule         // the entry of Config.Allow that matches, or nil
	holds []*quota.Hold // places in flight

	unasked   bool    // denied by a rule that needed no Store
	uncounted bool    // admitted although the Store is gone
	lost      *policy // a policy that did not count the request, if uncounted: Decision names it
	failed    error   // why the Store is not asked any more about this request
}

// A matched is the rules that apply to a request and their charges. Methods take and return it
// by value, like append, so that its arrays stay on the stack.
type matched struct {
	matches []match
	charges []charged // one for each policy of matches
}

// stackCharges is the number of charges that need no allocation. Few requests have more.
const stackCharges = 4

// A match is a rule that applies to the request, with the Store's key and the cost.
type match struct {
	rule  *rule
	key   string
	cost  int64
	local bool // counted in this process because the Store failed
}

// A charged is a charge to one policy, and the decision on it.
type charged struct {
	policy   *policy
	key      string
	n        int64 // units
	decision quota.Decision
}

// charge returns x as the Store takes it.
func (x *charged) charge() quota.Charge {
	return quota.Charge{Key: x.key, Limit: x.policy.limit, N: x.n, DryRun: x.dryRun()}
}

func (x *charged) dryRun() bool { return x.policy.rule.dryRun }

// admits reports whether the rules whose stage is at least from and less than until admit the
// request. It returns those that apply, and sets the fields or writes the denial.
func (c *check) admits(all matched, from, until Stage) (_ matched, ok bool) {
	if c.Observe != nil {
		c.began = time.Now()
	}
	if c.entry = c.allowed(c.r); c.entry != nil {
		c.progress.exempt.Store(true)
		return c.admittedTo(all, []*rule{c.entry}, nil)
	}
	return c.admittedTo(all, between(c.cheap, from, until), between(c.expensive, from, until))
}

// admittedTo reports whether all of the rules admit the request, the cheap ones first.
func (c *check) admittedTo(all matched, cheap, expensive []*rule) (_ matched, ok bool) {
	if all, ok = c.step(all, cheap); !ok {
		return all, false
	}
	made := all
	if all, ok = c.step(all, expensive); !ok {
		if !c.unasked { // a blocked key, or an unreadable body, is charged by the cheap rules all the same
			c.giveBack(made)
		}
		return all, false
	}
	return all, len(all.matches) == 0 || c.respond(all)
}

// step reports whether those of rules that apply admit the request, in one decision.
func (c *check) step(all matched, rules []*rule) (_ matched, ok bool) {
	if len(rules) == 0 {
		return all, true
	}
	matched, charged := len(all.matches), len(all.charges)
	if all, ok = c.match(all, rules); !ok {
		return all, false
	}
	for _, m := range all.matches[matched:] {
		if m.rule.inFlight > 0 && !c.hold(all, m) {
			return all, false
		}
	}
	if len(all.charges) == charged {
		return all, true
	}
	if all, ok = c.take(all, matched, charged); !ok {
		return all, false
	}
	return all, !c.denies(all, charged)
}

// match finds those of rules that apply, and makes a charge for each of their policies. ok is
// false if the request was denied: its key is blocked, or it is unknown whether it is, or its body does
// not name the key to charge.
func (c *check) match(all matched, rules []*rule) (_ matched, ok bool) {
	target := target{request: c.r}
	for _, r := range rules {
		if !c.matches(r, &target) {
			continue
		}
		m := match{rule: r, key: c.keyOf(r), cost: r.units(c.r)}
		policies, status, unknown := c.policiesOf(m)
		switch {
		case unknown != nil:
			if policies, ok = c.withoutLimits(m, policies, unknown); !ok {
				return all, false
			}
		case status == 0:
		case r.dryRun:
			c.Audit(c.about(WouldDeny, r, m.key))
			continue
		default:
			c.refuseUnasked(m, status)
			return all, false
		}
		if l := r.login; l != nil && !l.byNetwork && c.knowsNetwork(l) {
			continue
		}
		all.matches = append(all.matches, m)
		for _, p := range policies {
			all.charges = append(all.charges, charged{policy: p, key: m.key, n: m.cost})
		}
		if p := r.penalty; p != nil && p.First > 0 {
			all.charges = append(all.charges, charged{policy: p.debt, key: m.key, n: 1})
		}
		if c.audited {
			c.auditForwarding(r, m.key)
		}
	}
	return all, true
}

// matches reports whether r applies to the request.
func (c *check) matches(r *rule, t *target) bool {
	if r.matcher != nil && !r.matcher.matches(t) {
		return false
	}
	if r.applies == nil {
		return true
	}
	if r.readsBody {
		readBody(c.r) // before r.applies can consume it
	}
	return r.applies(c.r)
}

// policiesOf returns the policies that apply to m, or the status of a denial that needs no Store. If it
// is unknown whether m's key has limits of its own, they are those of other keys.
func (c *check) policiesOf(m match) (_ []*policy, status int, unknown error) {
	if status = c.unreadable(m.rule); status != 0 || m.rule.limits == nil {
		return m.rule.policies, status, nil
	}
	set, unknown := m.rule.limits.of(c, m)
	if set.blocked {
		status = http.StatusForbidden
	}
	return set.policies, status, unknown
}

// withoutLimits returns the policies that apply to m while the limits of its key are unknown: by failure
// mode, those of other keys or none. ok is false if the request was refused.
func (c *check) withoutLimits(m match, others []*policy, unknown error) (_ []*policy, ok bool) {
	mode := m.rule.modeAfter(unknown)
	if mode == FailLocal {
		return others, true
	}
	c.auditFailure(m.rule, m.key, unknown)
	if mode == FailClosed {
		c.observeRefusal(m.rule, m.key)
		c.refuse(c.outageDenial(m.rule))
		return nil, false
	}
	c.uncounted, c.lost = true, others[0]
	return nil, true
}

// units returns the cost of req, at least 1.
func (r *rule) units(req *http.Request) int64 {
	if r.cost == nil {
		return 1
	}
	return max(1, r.cost(req))
}

// unreadable returns the status of the denial if r reads the body or limits logins, and the request
// does not name the key.
func (c *check) unreadable(r *rule) (status int) {
	b, read := c.r.Body.(*body)
	switch {
	case read && r.readsBody && b.tooLong:
		return http.StatusRequestEntityTooLarge
	case read && r.readsBody && b.ambiguous, r.login != nil && r.login.account.Of(c.r) == "":
		return http.StatusBadRequest
	}
	return 0
}

// take asks the Store to decide on what a step added: the matches and the charges from these
// indexes on. ok is false if the Store failed and the request was refused because of that.
func (c *check) take(all matched, matched, charged int) (_ matched, ok bool) {
	made := all.charges[charged:]
	if c.store.memory != nil {
		takeIn(c.store.memory, made)
		return all, true
	}
	asked := make([]quota.Charge, len(made))
	for i := range made {
		asked[i] = made[i].charge()
	}
	var decisions []quota.Decision
	err := c.failed
	if err == nil {
		decisions, err = c.store.take(c.r.Context(), asked)
	}
	if err != nil {
		c.failed = err
		for i := range all.matches[matched:] {
			all.matches[matched+i].local = true
		}
		return c.takeWithout(all, charged, err)
	}
	for i := range made {
		made[i].decision = decisions[i]
	}
	c.auditSuccess()
	c.remember(made)
	return all, true
}

// takeIn lets m decide on charges.
func takeIn(m *quota.Memory, made []charged) {
	var charges [stackCharges]quota.Charge
	var decisions [stackCharges]quota.Decision
	asked := charges[:0]
	for i := range made {
		asked = append(asked, made[i].charge())
	}
	// It fails only on charges that compile does not make.
	answer, _ := m.Take(context.Background(), decisions[:0], asked...)
	for i := range made {
		made[i].decision = answer[i]
	}
}

// takeWithout decides on the charges from an index on without the Store, by failure mode.
func (c *check) takeWithout(all matched, from int, err error) (_ matched, ok bool) {
	strictest := all.charges[from]
	for _, other := range all.charges[from:] {
		if other.policy.rule.modeAfter(err).severity() > strictest.policy.rule.modeAfter(err).severity() {
			strictest = other
		}
	}
	failing := strictest.policy.rule
	c.auditFailure(failing, strictest.key, err)
	switch failing.modeAfter(err) {
	case FailOpen:
		c.uncounted, c.lost = true, all.charges[from].policy
		all.charges = all.charges[:from]
		return all, true
	case FailClosed:
		c.observeRefusal(failing, strictest.key)
		c.refuse(c.outageDenial(failing))
		return all, false
	}
	kept := all.charges[:from]
	for _, each := range all.charges[from:] {
		if each.policy.rule.modeAfter(err) == FailLocal {
			kept = append(kept, each)
		}
	}
	all.charges = kept
	takeIn(c.Memory, all.charges[from:])
	return all, true
}

// remember charges this process's memory with what the Store admitted, so that an outage does
// not begin with a full quota here.
func (c *check) remember(made []charged) {
	for i := range made {
		if made[i].denies() {
			return // nothing was charged
		}
	}
	for i := range made {
		// It fails only on charges that compile does not make.
		_ = c.Memory.Settle(context.Background(), made[i].charge())
	}
}

// denies reports whether x denies the request.
func (x *charged) denies() bool { return !x.decision.Allowed && !x.dryRun() }

// giveBack refunds the charges of the first step after the second one denied.
func (c *check) giveBack(made matched) {
	if !c.store.settles() {
		return
	}
	s := c.settlement(made)
	for _, m := range made.matches {
		s.correct(m, s.difference(m, -m.cost)...)
	}
}
