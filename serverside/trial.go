package serverside

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A trial is one request, from its charges to the verdict. Trials are reused.
type trial struct {
	target    target
	charges   []quota.Charge
	policies  []*policy        // of charges
	decisions []quota.Decision // on charges
	told      []finding        // on enforced policies, the tightest first
	dry       []finding        // on policies that are not, and would deny
	limits    []ratelimit.Limit
}

// A finding is a policy and what was decided on a charge to it.
type finding struct {
	*policy
	*quota.Decision
	key string
}

var trials = sync.Pool{New: func() any { return new(trial) }}

// release forgets the request, whose keys are nobody else's business.
func (t *trial) release() {
	clear(t.charges)
	clear(t.told)
	clear(t.dry)
	t.target.reset()
	t.charges, t.policies, t.decisions = t.charges[:0], t.policies[:0], t.decisions[:0]
	t.told, t.dry, t.limits = t.told[:0], t.dry[:0], t.limits[:0]
	trials.Put(t)
}

// charge makes a charge for each policy of each rule that matches r.
func (t *trial) charge(p *plan, req *http.Request) {
	who := identity{request: req, otherwise: p.Key}
	for i := range p.rules {
		r := &p.rules[i]
		if !t.matches(r, req) {
			continue
		}
		key, cost := who.of(r), r.units(req)
		for _, policy := range r.policies {
			t.policies = append(t.policies, policy)
			t.charges = append(t.charges, quota.Charge{Key: key, Limit: policy.limit, N: cost, DryRun: r.dryRun})
		}
		p.auditForwarding(req, r, key)
	}
}

func (t *trial) matches(r *rule, req *http.Request) bool {
	if r.matcher == nil {
		return true
	}
	t.target.aim(req)
	return t.target.matches(r.matcher)
}

// units is what req costs. Nothing is free, and nothing pays back.
func (r *rule) units(req *http.Request) int64 {
	if r.cost == nil {
		return 1
	}
	return max(1, r.cost(req))
}

// An identity is whose quota a request is charged to. What rules have in common
// is asked for once.
type identity struct {
	request   *http.Request
	otherwise KeyFunc // where a rule has none; may be nil
	common    string
}

// of returns the Store's key for r.
func (id *identity) of(r *rule) string {
	if r.key != nil {
		if key := r.key(id.request); key != "" {
			return subject(key)
		}
	}
	if id.common == "" {
		id.common = id.fallback()
	}
	return id.common
}

func (id *identity) fallback() string {
	if id.otherwise != nil {
		if key := id.otherwise(id.request); key != "" {
			return subject(key)
		}
	}
	return peerOf(id.request)
}

// take has p's Store decide.
func (t *trial) take(p *plan, req *http.Request) error {
	if p.remote == nil {
		t.count(p.memory)
		return nil
	}
	decisions, err := p.remote.take(req.Context(), t.charges)
	t.decisions = append(t.decisions, decisions...) // a copy: the Store may keep its own
	return err
}

// count has m decide, which fails only on charges that compile does not make.
func (t *trial) count(m *quota.Memory) {
	t.decisions, _ = m.Take(context.Background(), t.decisions[:0], t.charges...)
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
	clear(t.charges[n:])
	t.policies, t.charges = t.policies[:n], t.charges[:n]
}

// judge turns decisions into findings.
func (t *trial) judge() {
	for i := range t.decisions {
		f := finding{t.policies[i], &t.decisions[i], t.charges[i].Key}
		switch {
		case !f.rule.dryRun:
			t.told = append(t.told, f)
		case !f.Allowed:
			t.dry = append(t.dry, f)
		}
	}
	if len(t.told) > 1 {
		slices.SortStableFunc(t.told, tighter)
	}
	if len(t.dry) > 1 {
		slices.SortStableFunc(t.dry, tighter)
	}
}

// denials are the findings that deny the request.
func (t *trial) denials() []finding {
	n := 0
	for n < len(t.told) && !t.told[n].Allowed {
		n++
	}
	return t.told[:n]
}

// tighter orders findings: first those that deny, the longest wait first; then
// those with the smallest part of their quota left; then those that are whole
// again latest.
func tighter(a, b finding) int {
	return cmp.Or(
		first(!a.Allowed, !b.Allowed),
		first(a.Never, b.Never),
		cmp.Compare(b.RetryAfter, a.RetryAfter),
		cmp.Compare(a.left(), b.left()),
		cmp.Compare(b.ResetAfter, a.ResetAfter),
	)
}

// first orders what holds before what does not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// left is the part of the quota that is left. Equal parts are equal, since a
// division is rounded correctly.
func (f finding) left() float64 { return float64(f.Remaining) / float64(f.burst) }

// tell writes the rate-limit fields.
func (t *trial) tell(p *plan, h http.Header) {
	for i := range t.told {
		t.limits = append(t.limits, t.told[i].state())
	}
	if len(t.told) > 0 {
		t.template(p).Set(h, t.limits...)
	}
}

// template returns what was prepared for t's policies. It was not if they are of
// some rules, but not of all.
func (t *trial) template(p *plan) ratelimit.Template {
	only := t.told[0].rule
	switch {
	case len(t.told) == p.enforced:
		return p.template
	case t.toldOf(only):
		return only.template
	default:
		return ratelimit.Prepare(p.Style, t.limits...)
	}
}

// toldOf reports whether all that is told is of r.
func (t *trial) toldOf(r *rule) bool {
	for i := range t.told {
		if t.told[i].rule != r {
			return false
		}
	}
	return true
}

// state is f as the fields tell it. A burst beyond the quota is not told: what
// remains is never more than the limit.
func (f *finding) state() ratelimit.Limit {
	l := f.fields
	l.Remaining, l.Next, l.Reset, l.At = f.Remaining, f.NextAfter, f.ResetAfter, f.At
	if l.Remaining >= l.Quota {
		l.Remaining, l.Next = l.Quota, 0
	}
	return l
}

// sentence reports whether t's decisions admit the request, and writes what the
// client is to know.
func (p *plan) sentence(w http.ResponseWriter, r *http.Request, t *trial) bool {
	t.judge()
	p.auditDenials(WouldDeny, t.dry)
	denials := t.denials()
	if len(denials) > 0 || !p.FieldsOnDenialOnly {
		t.tell(p, w.Header())
	}
	if len(denials) == 0 {
		return true
	}
	p.auditDenials(Denied, denials)
	p.refuse(w, r, denialOf(denials))
	return false
}
