package serverside

import (
	"cmp"
	"context"
	"net/http"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A trial is what one request is charged: a charge to each policy of each rule
// that matches it.
type trial struct {
	charges  []quota.Charge
	policies []*policy // of charges
}

// A finding is a policy and what was decided on a charge to it.
type finding struct {
	*policy
	quota.Decision
	key string
}

// A room holds what a request is tried with, if it has few charges, as nearly all
// have: on the stack, so that trying it allocates nothing. What leads there must
// not outlive the call, and a finding has a copy of its Decision for that reason.
type room struct {
	charges   [few]quota.Charge
	policies  [few]*policy
	decisions [few]quota.Decision
	findings  [few]finding
}

const few = 4

// charge makes a charge for each policy of each rule that matches req.
func (t trial) charge(p *plan, req *http.Request) trial {
	who := identity{request: req, otherwise: p.Key}
	aim := target{request: req}
	for i := range p.rules {
		r := &p.rules[i]
		if r.matcher != nil && !r.matcher.matches(&aim) {
			continue
		}
		key, cost := who.of(r), r.units(req)
		for _, policy := range r.policies {
			t.policies = append(t.policies, policy)
			t.charges = append(t.charges, quota.Charge{Key: key, Limit: policy.limit, N: cost, DryRun: r.dryRun})
		}
		p.auditForwarding(req, r, key)
	}
	return t
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

// take has p's Store decide, and appends what it decides to dst.
func (t trial) take(dst []quota.Decision, p *plan, req *http.Request) ([]quota.Decision, error) {
	if p.remote == nil {
		return t.count(dst, p.memory), nil
	}
	decisions, err := p.remote.take(req.Context(), t.charges)
	return append(dst, decisions...), err // a copy: the Store may keep its own
}

// count has m decide, which fails only on charges that compile does not make.
func (t trial) count(dst []quota.Decision, m *quota.Memory) []quota.Decision {
	dst, _ = m.Take(context.Background(), dst, t.charges...)
	return dst
}

// remember charges m with what the Store has admitted of FailLocal rules, so that
// its failure does not begin with a burst of this process's own.
func (t trial) remember(m *quota.Memory, decisions []quota.Decision) {
	for i := range decisions {
		if !decisions[i].Allowed && !t.charges[i].DryRun {
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
func (t trial) strictest() int {
	worst := 0
	for i, p := range t.policies {
		if p.rule.mode.severity() > t.policies[worst].rule.mode.severity() {
			worst = i
		}
	}
	return worst
}

// local returns t without the charges of rules that are not FailLocal.
func (t trial) local() trial {
	n := 0
	for i, p := range t.policies {
		if p.rule.mode == FailLocal {
			t.policies[n], t.charges[n] = p, t.charges[i]
			n++
		}
	}
	return trial{t.charges[:n], t.policies[:n]}
}

// judge appends to dst, which is empty, what decisions find: first on enforced
// policies, then on the others, the tightest first.
func (t trial) judge(dst []finding, decisions []quota.Decision) []finding {
	for i := range decisions {
		dst = append(dst, finding{t.policies[i], decisions[i], t.charges[i].Key})
		for j := i; j > 0 && tighter(&dst[j], &dst[j-1]); j-- {
			dst[j], dst[j-1] = dst[j-1], dst[j]
		}
	}
	return dst
}

// enforced returns the findings on policies that are no dry run, and the others.
func enforced(findings []finding) (told, dry []finding) {
	n := 0
	for n < len(findings) && !findings[n].rule.dryRun {
		n++
	}
	return findings[:n], findings[n:]
}

// denials are the findings that deny the request, or would.
func denials(findings []finding) []finding {
	n := 0
	for n < len(findings) && !findings[n].Allowed {
		n++
	}
	return findings[:n]
}

// tighter reports whether a stands before b: first what is enforced; then what
// denies, the longest wait first; then the smallest part of a quota left; then
// what is whole again latest.
func tighter(a, b *finding) bool {
	return cmp.Or(
		first(!a.rule.dryRun, !b.rule.dryRun),
		first(!a.Allowed, !b.Allowed),
		first(a.Never, b.Never),
		cmp.Compare(b.RetryAfter, a.RetryAfter),
		cmp.Compare(a.left(), b.left()),
		cmp.Compare(b.ResetAfter, a.ResetAfter),
	) < 0
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
func (f *finding) left() float64 { return float64(f.Remaining) / float64(f.burst) }

// tell writes the rate-limit fields.
func (p *plan) tell(h http.Header, told []finding) {
	if len(told) == 0 {
		return
	}
	var space [few]ratelimit.Limit
	limits := space[:0]
	for i := range told {
		limits = append(limits, told[i].fields)
		told[i].describe(&limits[i])
	}
	switch {
	case len(told) == p.enforced:
		p.template.Set(h, limits...)
	case allOf(told, told[0].rule):
		told[0].rule.template.Set(h, limits...)
	default: // there is a template for each rule and for all, but not for some
		ratelimit.Set(h, p.Style, limits...)
	}
}

// allOf reports whether all findings are of r.
func allOf(findings []finding, r *rule) bool {
	for i := range findings {
		if findings[i].rule != r {
			return false
		}
	}
	return true
}

// describe completes l, which is f.fields. A burst beyond the quota is not told:
// what remains is never more than the limit.
func (f *finding) describe(l *ratelimit.Limit) {
	l.Remaining, l.Next, l.Reset, l.At = f.Remaining, f.NextAfter, f.ResetAfter, f.At
	if l.Remaining >= l.Quota {
		l.Remaining, l.Next = l.Quota, 0
	}
}

// sentence reports whether findings admit the request, and writes what the
// client is to know.
func (p *plan) sentence(w http.ResponseWriter, r *http.Request, findings []finding) bool {
	told, dry := enforced(findings)
	p.auditDenials(WouldDeny, denials(dry))
	denied := denials(told)
	if len(denied) > 0 || !p.FieldsOnDenialOnly {
		p.tell(w.Header(), told)
	}
	if len(denied) == 0 {
		return true
	}
	p.auditDenials(Denied, denied)
	p.refuse(w, r, denialOf(denied))
	return false
}
