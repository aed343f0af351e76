package serverside

import (
	"net/http"

	"github.com/heedhttp/heed/ratelimit"
)

// judge orders what was decided: first on enforced policies, then on the others,
// the tightest first.
func (t *trial) judge() {
	for i := range t.decisions {
		for j := i; j > 0 && t.tighter(j, j-1); j-- {
			t.swap(j, j-1)
		}
	}
}

func (t *trial) swap(i, j int) {
	t.policies[i], t.policies[j] = t.policies[j], t.policies[i]
	t.charges[i], t.charges[j] = t.charges[j], t.charges[i]
	t.decisions[i], t.decisions[j] = t.decisions[j], t.decisions[i]
}

// tighter reports whether i stands before j: first what is enforced; then what
// denies, the longest wait first; then the smallest part of a quota left; then
// what is whole again latest.
func (t *trial) tighter(i, j int) bool {
	if dry := t.charges[i].DryRun; dry != t.charges[j].DryRun {
		return !dry
	}
	a, b := &t.decisions[i], &t.decisions[j]
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.Never != b.Never:
		return a.Never
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	}
	if left, other := t.left(i), t.left(j); left != other {
		return left < other
	}
	return a.ResetAfter > b.ResetAfter
}

// left is the part of the quota that is left. Equal parts are equal, since a
// division is rounded correctly. What is hidden has more than anything else.
func (t *trial) left(i int) float64 {
	if t.policies[i].hidden {
		return 2
	}
	return float64(t.decisions[i].Remaining) / float64(t.policies[i].atOnce)
}

// enforced returns how many policies, which stand first, are no dry run.
func (t *trial) enforced() int {
	n := len(t.charges)
	for n > 0 && t.charges[n-1].DryRun {
		n--
	}
	return n
}

// denials returns the end of what denies the request, or would, among what stands
// in from to end.
func (t *trial) denials(from, end int) int {
	for from < end && !t.decisions[from].Allowed {
		from++
	}
	return from
}

// part is what stands in from to end, of a trial that is judged.
func (t *trial) part(from, end int) *trial {
	return &trial{policies: t.policies[from:end], charges: t.charges[from:end], decisions: t.decisions[from:end]}
}

// sentence is what becomes of a trial that is judged. It writes what the client is
// to know.
func (p *plan) sentence(w http.ResponseWriter, r *http.Request, t *trial, e *escort) outcome {
	told := t.enforced()
	if end := t.denials(told, len(t.charges)); end > told {
		p.wouldDeny(r, t.part(told, end))
	}
	denials := t.denials(0, told)
	if told > 0 && (denials > 0 || !p.FieldsOnDenialOnly) {
		p.tell(w.Header(), t, told, e)
	}
	if denials > 0 {
		p.deny(w, r, t.part(0, denials), t.part(0, told), e)
		return denied
	}
	if p.audited && told > 0 && t.policies[0].isNear(&t.decisions[0]) {
		p.auditNear(t)
	}
	return admitted
}

// deny answers what denials, which are part of told, come down to.
func (p *plan) deny(w http.ResponseWriter, r *http.Request, denials, told *trial, e *escort) {
	d := denials.denial(told)
	p.auditDenial(Denied, r, denials, &d)
	if e != nil {
		e.refused(denials)
	}
	p.refuse(w, r, d)
}

func (p *plan) wouldDeny(r *http.Request, denials *trial) {
	d := denials.denial(denials)
	p.auditDenial(WouldDeny, r, denials, &d)
}

// tell writes the rate-limit fields of the first n policies.
func (p *plan) tell(h http.Header, t *trial, n int, e *escort) {
	policies, limits := t.policies[:n], make([]ratelimit.Limit, 0, few)
	for i, policy := range policies {
		if !policy.hidden {
			limits = append(limits, policy.describe(&t.decisions[i]))
		}
	}
	switch {
	case e != nil:
		e.tell(h, t, policies, limits)
	case len(limits) == p.enforced: // all that rules enforce
		p.template.Set(h, limits...)
	default:
		p.tellSome(h, policies, limits)
	}
}

// tellSome tells of some of the policies that rules enforce: there is a template for
// those of one rule, and none for others.
func (p *plan) tellSome(h http.Header, policies []*policy, limits []ratelimit.Limit) {
	if s := shareOf(policies); s != nil {
		s.template.Set(h, limits...)
		return
	}
	ratelimit.Set(h, p.Style, limits...)
}

// tell is tellSome where an earlier stage may have told of others.
func (e *escort) tell(h http.Header, t *trial, policies []*policy, limits []ratelimit.Limit) {
	switch {
	case len(limits) == 0:
	case !e.visit.isTighter(t):
		e.visit.tell(t)
		if e.entry == nil && len(limits) == e.enforced {
			e.template.Set(h, limits...)
			return
		}
		e.tellSome(h, policies, limits)
	case e.lists != 0: // of the tightest, the earlier stage has told
		ratelimit.Set(h, e.lists, limits...)
	}
}

// shareOf returns the share that all policies which are not hidden are of, or nil.
func shareOf(policies []*policy) (s *share) {
	for _, p := range policies {
		switch {
		case p.hidden:
		case p.share == nil || s != nil && p.share != s:
			return nil
		default:
			s = p.share
		}
	}
	return s
}
