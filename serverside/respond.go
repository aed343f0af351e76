package serverside

import (
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// denies reports whether a decision denies the request, and writes the denial. The decision is
// on the charges from an index on.
func (c *check) denies(matched matched, from int) bool {
	all := matched.charges[from:]
	sortByTightness(all)
	enforced := len(all) // these come first
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
	matched.charges = all // earlier charges are refunded
	c.observe(matched, Refused)
	c.refuse(d)
	return true
}

// denying returns the charges at the front of all for which denies is true.
func denying(all []charged, denies func(*charged) bool) []charged {
	for i := range all {
		if !denies(&all[i]) {
			return all[:i]
		}
	}
	return all
}

// sortByTightness sorts all in place. They are few, and large to copy.
func sortByTightness(all []charged) {
	for i := range all {
		for j := i; j > 0 && all[j].isTighter(&all[j-1]); j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
}

// isTighter reports whether x sorts before y: enforced before dry run, then denying before
// admitting, then the longer wait, then the smaller fraction of the quota left, then the later
// reset.
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

// left returns the fraction of the quota that is left. Policies that are not shown sort last.
func (x *charged) left() float64 {
	if x.policy.shown != always {
		return 2
	}
	return float64(x.decision.Remaining) / float64(x.policy.atOnce)
}

// respond sets the fields of an admitted request, and reports whether to serve it. It returns
// false if the client disconnects while a LeakyBucket delays the request.
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
	return c.waitUntilDue(all.charges)
}

// exposeFields lets scripts of other origins read the fields. It does so once per request.
func (c *check) exposeFields() {
	if c.expose != "" && !c.progress.exposed {
		c.progress.exposed = true
		c.w.Header().Add("Access-Control-Expose-Headers", c.expose)
	}
}

// waitUntilDue waits as long as a LeakyBucket delays the request. It returns false if the
// client disconnects.
func (c *check) waitUntilDue(all []charged) bool {
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

// setFields writes the rate-limit fields of those of all that are shown. all is sorted.
func (c *check) setFields(all []charged) {
	var buffer [stackCharges]ratelimit.Limit
	limits, first := buffer[:0], (*charged)(nil)
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
	case c.progress.isTighter(first): // the other fields show an earlier stage's policy
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
