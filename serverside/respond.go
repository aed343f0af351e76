package serverside

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// outageWait is what a client is told to wait while the Store fails: about as
// long as it takes to ask again.
const outageWait = time.Second

// fullWait is what a client is told to wait for a place in flight.
const fullWait = time.Second

// A Denial is a request that is not admitted.
type Denial struct {
	// Status is 429; 503 if a rule of the Overload stage with that Status denies, or for
	// an Outage, if Config.ClosedStatus does not say otherwise; or 400 or 413, if Unread.
	Status int

	// RetryAfter is how long it is until a request of the same cost fits. In the
	// header it is rounded up to a second. Of what is in flight nobody knows, so it
	// is a second.
	RetryAfter time.Duration

	// Never is that it will not be admitted however long it waits: it costs more than the
	// quota ever holds, or is Unread. RetryAfter is 0, and the header tells not to retry.
	Never bool

	// InFlight is that as many requests as may be are being served.
	InFlight bool

	// Penalized is that a Penalty keeps the client out.
	Penalized bool

	// Outage is that the Store failed, and the rule fails closed.
	Outage bool

	// Unread is that the body does not say whose quota the request is charged to: it is
	// longer than 64 KiB (413), or says it not at all, or in two ways (400).
	Unread bool

	// Rule is the name of the rule that denies: of several, of the first that was
	// asked.
	Rule string

	// Policies are the names, as in the RateLimit field, of all policies that
	// deny, the one with the longest wait first. It is empty if the Store failed, if the
	// body is Unread, and for what is in flight.
	Policies []string

	// Quota and Window are those of the first of Policies; or Quota is how many
	// requests may be in flight.
	Quota  int64
	Window time.Duration

	// ResetAt is when that quota is whole again; zero if there is none.
	ResetAt time.Time

	// Cost is what the request costs by that policy, and FitsNow the largest cost
	// that all policies would admit at once. It may be worth splitting a request
	// rather than to wait.
	Cost, FitsNow int64
}

// isDenied reports whether the charges from an index on, which one decision was about,
// deny the request. If so, the response is written.
func (c *check) isDenied(matched matched, from int) bool {
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
	c.tell(all[:enforced])
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
	if c.expose != "" {
		c.w.Header().Add("Access-Control-Expose-Headers", c.expose)
	}
	if !c.FieldsOnDenialOnly {
		c.tell(all.charges)
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

// tell writes the rate-limit fields of all that are shown, which are sorted.
func (c *check) tell(all []charged) {
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
		c.progress.tell(first)
		if template, ok := c.templateOf(all, len(limits)); ok {
			template.Set(c.w.Header(), limits...)
		} else {
			ratelimit.Set(c.w.Header(), c.Style, limits...)
		}
	}
}

// denialOf sums up what denies a request: denying, which are part of all.
func denialOf(denying, all []charged) Denial {
	longest, rule := &denying[0], firstAsked(denying)
	d := Denial{
		Status:     rule.status,
		RetryAfter: longest.decision.RetryAfter,
		Never:      longest.decision.Never,
		Penalized:  longest.policy.shown == never,
		Rule:       rule.name,
		Quota:      longest.policy.fields.Quota,
		Window:     longest.policy.fields.Window,
		ResetAt:    longest.decision.At.Add(longest.decision.ResetAfter),
		Cost:       longest.n,
		FitsNow:    all[0].decision.Remaining,
	}
	for i := range denying {
		d.Policies = append(d.Policies, denying[i].policy.fields.Name)
	}
	for i := range all {
		d.FitsNow = min(d.FitsNow, all[i].decision.Remaining)
	}
	return d
}

// firstAsked is the rule of those that is asked first.
func firstAsked(all []charged) *rule {
	first := all[0].policy.rule
	for i := range all {
		if r := all[i].policy.rule; r.order < first.order {
			first = r
		}
	}
	return first
}

// outageOf is that nobody knows whether r would deny.
func (c *compiled) outageOf(r *rule) Denial {
	return Denial{Status: cmp.Or(c.ClosedStatus, http.StatusServiceUnavailable), RetryAfter: outageWait, Outage: true, Rule: r.name}
}

// refuseUnread answers a request whose body does not say what m's key is.
func (c *check) refuseUnread(all matched, m match, status int) {
	all.matches = append(all.matches, m)
	e := c.about(Denied, m.rule, m.key)
	e.Status = status
	c.Audit(e)
	c.observe(all, Refused)
	c.refuse(Denial{Status: status, Never: true, Unread: true, Rule: m.rule.name})
}

// refuse answers with d. It does not touch the body of the request.
func (c *check) refuse(d Denial) {
	if c.expose != "" {
		c.w.Header().Add("Access-Control-Expose-Headers", c.expose)
	}
	h, values := c.w.Header(), make([]string, 3) // each in a place of its own
	values[0], values[1] = "no-store", c.advice(&d)
	h["Cache-Control"] = values[0:1:1]
	if d.Never {
		h.Del("Retry-After")
		h["X-Should-Retry"] = values[1:2:2]
	} else {
		h["Retry-After"] = values[1:2:2]
	}
	if c.RetryAfterMS && !d.Never {
		h["Retry-After-Ms"] = []string{strconv.FormatInt(d.millis(), 10)}
	}
	head := c.r.Method == http.MethodHead
	if c.Deny != nil {
		body := &denialWriter{ResponseWriter: c.w, status: d.Status, head: head}
		c.Deny(body, c.r, d)
		body.WriteHeader(d.Status)
		return
	}
	values[2] = "application/problem+json"
	h["Content-Type"] = values[2:3:3]
	c.w.WriteHeader(d.Status)
	if !head {
		c.w.Write(d.appendProblem(make([]byte, 0, 320)))
	}
}

// advice is what Retry-After says, or X-Should-Retry as Stripe's, OpenAI's and
// heed's clients read it.
func (c *compiled) advice(d *Denial) string {
	switch {
	case d.Never:
		return "false"
	case c.RetryAfterDate: // a second more, since a date has no fraction
		return time.Now().Add(d.RetryAfter + time.Second - 1).UTC().Format(http.TimeFormat)
	default:
		return strconv.FormatInt(d.seconds(), 10)
	}
}

// seconds is what Retry-After says (RFC 9110, section 10.2.3): rounded up, for a
// client that comes early is denied again, and never 0, for that says "now".
func (d *Denial) seconds() int64 { return max(1, ceil(d.RetryAfter, time.Second)) }

// millis is the same in milliseconds.
func (d *Denial) millis() int64 { return max(1, ceil(d.RetryAfter, time.Millisecond)) }

// ceil is d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// putDecision puts what was decided into the context of the request, if a policy that is
// shown says something.
func (c *check) putDecision(all matched, verdict Verdict) {
	d := Decision{Verdict: verdict, Degraded: c.local || c.uncounted}
	switch {
	case len(all.charges) > 0 && all.charges[0].policy.shown == always && !all.charges[0].dryRun():
		x := &all.charges[0]
		d.Rule, d.Policy, d.Quota = x.policy.rule.name, x.policy.fields.Name, x.policy.fields.Quota
		d.Remaining, d.ResetAt = x.decision.Remaining, x.decision.At.Add(x.decision.ResetAfter)
	case verdict == Uncounted && c.lost != nil && c.lost.shown == always && !c.lost.rule.dryRun:
		d.Rule, d.Policy = c.lost.rule.name, c.lost.fields.Name
	default:
		return
	}
	c.r = c.r.WithContext(context.WithValue(c.r.Context(), decisionKey{}, &d))
}
