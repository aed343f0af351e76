package serverside

import (
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// denies reports whether the charges from an index on, which one decision was about,
// deny the request. If so, the response is written.
func (c *check) denies(matched matched, from int) bool {
	all := matched.charges[from:]
	sortByTightness(all)
	enforced := len(all) // which stand first
	for enforced > 0 && all[enforced-1].dryRun() {
		enforced--
	}
	if would := denying(all[enforced:], func(x *charged) bool { return !x.decision.Allowed }); len(would) > 0 {
		c.auditDenial(WouldDeny, would, denialOf(would, would))
	}
	denying := denying(all[:enforced], (*charged).denies)
	if len(denying) == 0 {
		return false
	}
	c.setFields(all[:enforced])
	d := denialOf(denying, all[:enforced])
	c.auditDenial(Denied, denying, d)
	c.strikeDenied(matched, denying)
	matched.charges = all // the others are given back
	c.observe(matched, Refused)
	c.refuse(d)
	return true
}

// denying are the first of all for which denies holds.
func denying(all []charged, denies func(*charged) bool) []charged {
	for i := range all {
		if !denies(&all[i]) {
			return all[:i]
		}
	}
	return all
}

// sortByTightness sorts all, which are few, and are not copied to be compared.
func sortByTightness(all []charged) {
	for i := range all {
		for j := i; j > 0 && all[j].isTighter(&all[j-1]); j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
}

// isTighter reports whether x stands before y: first what is enforced; then what denies,
// the longest wait first; then the smallest part of a quota left; then what is whole again
// latest.
func (x *charged) isTighter(y *charged) bool {
	a, b := &x.decision, &y.decision
	switch {
	case x.dryRun() != y.dryRun():
		return y.dryRun()
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.Never != b.Never:
		return a.Never
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	}
	if left, other := x.left(), y.left(); left != other {
		return left < other
	}
	return a.ResetAfter > b.ResetAfter
}

// left is the part of the quota that is left. Equal parts are equal, since a
// division is rounded correctly. What is not shown has more than anything else.
func (x *charged) left() float64 {
	if x.policy.shown != always {
		return 2
	}
	return float64(x.decision.Remaining) / float64(x.policy.atOnce)
}

// respond puts the fields into the response of a request that was admitted, and reports
// whether it is served: not if its client goes while it waits for its turn.
func (c *check) respond(all matched) bool {
	sortByTightness(all.charges)
	c.exposeFields()
	if !c.FieldsOnDenialOnly {
		c.setFields(all.charges)
	}
	verdict := Admitted
	switch {
	case c.uncounted && len(all.charges) == 0:
		verdict = Uncounted
	case c.entry != nil:
		verdict = Trusted
		c.Audit(c.about(Bypassed, c.entry, all.matches[0].key))
	case c.audited:
		c.auditNear(all.charges)
	}
	c.observe(all, verdict)
	if c.InContext {
		c.putDecision(all, verdict)
	}
	return c.waitsTurn(all.charges)
}

// exposeFields lets scripts of other origins read the fields, also if several stages write
// them.
func (c *check) exposeFields() {
	if c.expose != "" && !c.progress.exposed {
		c.progress.exposed = true
		c.w.Header().Add("Access-Control-Expose-Headers", c.expose)
	}
}

// waitsTurn waits for the turn of an admitted request, and reports whether it came: not if
// the client has gone before.
func (c *check) waitsTurn(all []charged) bool {
	var delay time.Duration
	for i := range all {
		if !all[i].dryRun() {
			delay = max(delay, all[i].decision.Delay)
		}
	}
	if delay == 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.r.Context().Done():
		return false
	}
}

// setFields writes the rate-limit fields of all that are shown, which are sorted.
func (c *check) setFields(all []charged) {
	var room [few]ratelimit.Limit
	limits, first := room[:0], (*charged)(nil)
	for i := range all {
		if x := &all[i]; !x.dryRun() && x.policy.isShown(&x.decision) {
			limits = append(limits, x.policy.describe(&x.decision))
			if first == nil {
				first = x
			}
		}
	}
	switch {
	case first == nil:
	case c.progress.isTighter(first): // which an earlier stage has told of
		if c.lists != 0 {
			ratelimit.Set(c.w.Header(), c.lists, limits...)
		}
	default:
		c.progress.setTightest(first)
		if template, ok := c.templateOf(all, len(limits)); ok {
			template.Set(c.w.Header(), limits...)
		} else {
			ratelimit.Set(c.w.Header(), c.Style, limits...)
		}
	}
}
