package serverside

import (
	"context"
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A check decides on one request, in steps: match finds the rules that apply and what they
// are charged to, take has the Store decide, and respond tells the client. Where a method
// reports that the request is not admitted, it has written the response.
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

	unread    bool    // the body does not say what to charge
	uncounted bool    // the Store is gone, and the request is admitted all the same
	lost      *policy // the first that it was not counted by
	failed    error   // why the Store is not asked any more
}

// A matched is what a request matches. It is passed and returned by value, as append does
// it, so that its room is on the stack.
type matched struct {
	matches []match   // the rules that apply
	charges []charged // to each of their policies
}

// few is how many charges there is room for on the stack, which nearly all requests have.
const few = 4

// A match is a rule that applies to the request, with the Store's key and the units that
// it charges.
type match struct {
	rule  *rule
	key   string
	cost  int64
	local bool // it was counted in this process, because the Store failed
}

// A charged is a charge to one policy, and what was decided on it.
type charged struct {
	policy   *policy
	key      string
	n        int64 // units
	decision quota.Decision
}

// charge is what the Store is asked.
func (x *charged) charge() quota.Charge {
	return quota.Charge{Key: x.key, Limit: x.policy.limit, N: x.n, DryRun: x.dryRun()}
}

func (x *charged) dryRun() bool { return x.policy.rule.dryRun }

// admits reports whether the rules of the stages from from to until admit the request, and
// returns what it matches. If they do, its response has its fields; if not, the response
// is written.
func (c *check) admits(all matched, from, until Stage) (_ matched, ok bool) {
	if c.Observe != nil {
		c.began = time.Now()
	}
	if c.entry = c.allowed(c.r); c.entry != nil {
		c.progress.exempt.Store(true)
		return c.admittedTo(all, []*rule{c.entry}, nil)
	}
	return c.admittedTo(all, between(c.cheap, from, until), between(c.dear, from, until))
}

// admittedTo reports whether the request is admitted to all of the rules: first to those
// that are cheap to ask.
func (c *check) admittedTo(all matched, cheap, dear []*rule) (_ matched, ok bool) {
	if all, ok = c.step(all, cheap); !ok {
		return all, false
	}
	made := all
	if all, ok = c.step(all, dear); !ok {
		if !c.unread { // which costs what is read
			c.giveBack(made)
		}
		return all, false
	}
	return all, len(all.matches) == 0 || c.respond(all)
}

// step reports whether the request is admitted to those of rules that apply, in one
// decision. If not, the response is written.
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

// match finds those of rules that apply, and makes a charge for each of their policies. It
// reports whether it is known what to charge: if not, the response is written.
func (c *check) match(all matched, rules []*rule) (_ matched, ok bool) {
	target := target{request: c.r}
	for _, r := range rules {
		if !c.matches(r, &target) {
			continue
		}
		m := match{rule: r, key: c.keyOf(r), cost: r.units(c.r)}
		if ok, skip := c.requireReadable(all, m); !ok {
			return all, false
		} else if skip {
			continue
		}
		if l := r.login; l != nil && !l.byNetwork && c.knowsNetwork(l) {
			continue
		}
		all.matches = append(all.matches, m)
		for _, p := range c.policiesOf(m) {
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

// matches reports whether r is about the request.
func (c *check) matches(r *rule, t *target) bool {
	if r.matcher != nil && !r.matcher.matches(t) {
		return false
	}
	if r.applies == nil {
		return true
	}
	if r.readsBody {
		readBody(c.r) // before If does
	}
	return r.applies(c.r)
}

// policiesOf are the policies that hold for m.
func (c *check) policiesOf(m match) []*policy {
	if m.rule.limits == nil {
		return m.rule.policies
	}
	return m.rule.limits.of(c, m).policies
}

// units is what req costs. Nothing is free, and nothing pays back.
func (r *rule) units(req *http.Request) int64 {
	if r.cost == nil {
		return 1
	}
	return max(1, r.cost(req))
}

// requireReadable reports whether the request says what m's key is, if that is to be read
// from its body, or is an account. A dry run does not require it.
func (c *check) requireReadable(all matched, m match) (ok, skip bool) {
	status := 0
	if b, read := c.r.Body.(*body); read && m.rule.readsBody {
		switch {
		case b.tooLong:
			status = http.StatusRequestEntityTooLarge
		case b.doubt:
			status = http.StatusBadRequest
		}
	}
	if l := m.rule.login; status == 0 && l != nil && l.account.Of(c.r) == "" {
		status = http.StatusBadRequest
	}
	switch {
	case status == 0:
		return true, false
	case m.rule.dryRun:
		c.Audit(c.about(WouldDeny, m.rule, m.key))
		return true, true
	default:
		c.refuseUnread(all, m, status)
		return false, false
	}
}

// take has the Store decide on what a step has added: the matches and the charges from two
// indexes on. It reports whether there is a decision, or none is needed.
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

// takeIn has m decide on charges.
func takeIn(m *quota.Memory, made []charged) {
	var charges [few]quota.Charge
	var decisions [few]quota.Decision
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

// takeWithout does, for the charges from an index on, what is to be done without the
// Store.
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
		c.observe(all, Refused)
		c.refuse(c.outageOf(failing))
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

// remember charges this process's memory with what the Store has admitted, so that an
// outage does not begin with a burst of this process's own.
func (c *check) remember(made []charged) {
	for i := range made {
		if made[i].denies() {
			return // it was charged nothing
		}
	}
	for i := range made {
		_ = c.Memory.Settle(context.Background(), made[i].charge()) // fails only on charges that compile does not make
	}
}

// denies reports whether x is a reason to deny the request.
func (x *charged) denies() bool { return !x.decision.Allowed && !x.dryRun() }

// giveBack gives back what an earlier step was charged for a request that a later one
// denied.
func (c *check) giveBack(made matched) {
	if !c.store.settles() {
		return
	}
	s := c.settlement(made)
	for _, m := range made.matches {
		s.correct(m, s.difference(m, -m.cost)...)
	}
}
