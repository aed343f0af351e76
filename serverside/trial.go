package serverside

import (
	"context"
	"net/http"

	"github.com/heedhttp/heed/quota"
)

// A trial is what one request is charged, and what is decided: a charge to each
// policy of each rule that matches it. What has one index belongs together.
type trial struct {
	policies  []*policy
	charges   []quota.Charge
	decisions []quota.Decision // on charges, once they are made
}

// A room is where a trial of few charges, as nearly all are, is held: on the
// stack or in an escort, so that it allocates nothing. What leads there must not
// outlive it.
type room struct {
	policies  [few]*policy
	charges   [few]quota.Charge
	decisions [few]quota.Decision
}

const few = 4

// trial returns one that is held in n.
func (n *room) trial() trial { return trial{n.policies[:0], n.charges[:0], n.decisions[:0]} }

// charge makes a charge for each policy of each of rules that matches req. e may be
// nil if none of them does more.
func (t *trial) charge(p *plan, rules []*rule, req *http.Request, e *escort) {
	who := identity{request: req, otherwise: p.Key}
	aim := target{request: req}
	for _, r := range rules {
		if !r.matches(&aim) {
			continue
		}
		key, cost, share := who.of(r), r.units(req), &r.share
		if r.vary != nil {
			share = r.vary.of(p, r, req, key)
		}
		for _, policy := range share.policies {
			c := t.add(policy)
			c.Key, c.Limit, c.N, c.DryRun = key, policy.limit, cost, r.dryRun
		}
		if r.more {
			e.meet(r, key, cost)
		}
		if p.audited {
			p.auditForwarding(req, r, key)
		}
	}
}

// matches reports whether r is about the request that aim is of.
func (r *rule) matches(aim *target) bool {
	return (r.matcher == nil || r.matcher.matches(aim)) && (r.applies == nil || r.applies(aim.request))
}

// add returns a new charge, to be filled in, to p.
func (t *trial) add(p *policy) *quota.Charge {
	n := len(t.charges)
	if n == cap(t.charges) {
		t.grow()
	}
	t.policies, t.charges, t.decisions = t.policies[:n+1], t.charges[:n+1], t.decisions[:n+1]
	t.policies[n] = p
	return &t.charges[n]
}

// grow moves t to where there is twice the room. It does so by hand because append
// would have the compiler take rooms off the stack.
func (t *trial) grow() {
	n, room := len(t.charges), 2*len(t.charges)
	policies, charges := make([]*policy, n, room), make([]quota.Charge, n, room)
	copy(policies, t.policies)
	copy(charges, t.charges)
	t.policies, t.charges = policies, charges
	t.decisions = make([]quota.Decision, n, room)
}

// units is what req costs. Nothing is free, and nothing pays back.
func (r *rule) units(req *http.Request) int64 {
	if r.cost == nil {
		return 1
	}
	return max(1, r.cost(req))
}

// take has p's Store decide.
func (t *trial) take(p *plan, req *http.Request) error {
	if p.remote == nil {
		t.count(p.memory)
		return nil
	}
	decisions, err := p.remote.take(req.Context(), t.charges)
	copy(t.decisions, decisions) // the Store may keep its own
	return err
}

// count has m decide, which fails only on charges that compile does not make.
func (t *trial) count(m *quota.Memory) {
	decisions, _ := m.Take(context.Background(), t.decisions[:0], t.charges...)
	copy(t.decisions, decisions) // which is where they are
}

// remember charges m with what the Store has admitted of FailLocal rules, so that
// its failure does not begin with a burst of this process's own.
func (t *trial) remember(m *quota.Memory) {
	for i := range t.decisions {
		if !t.decisions[i].Allowed && !t.charges[i].DryRun {
			return // the request is denied, and was charged nothing
		}
	}
	for i, p := range t.policies {
		if p.rule.mode == FailLocal {
			c := t.charges[i]
			c.N = c.Units()
			_ = m.Settle(context.Background(), c) // fails only on charges that compile does not make
		}
	}
}

// strictest returns the index of the charge whose rule says what becomes of the
// request while the Store fails.
func (t *trial) strictest() int {
	worst := 0
	for i, p := range t.policies {
		if p.rule.mode.severity() > t.policies[worst].rule.mode.severity() {
			worst = i
		}
	}
	return worst
}

// keepLocal drops the charges of rules that are not FailLocal.
func (t *trial) keepLocal() {
	n := 0
	for i, p := range t.policies {
		if p.rule.mode == FailLocal {
			t.policies[n], t.charges[n] = p, t.charges[i]
			n++
		}
	}
	t.policies, t.charges, t.decisions = t.policies[:n], t.charges[:n], t.decisions[:n]
}
