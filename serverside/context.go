package serverside

import (
	"context"
	"time"
)

// A Decision is what was decided about the request that a handler serves.
type Decision struct {
	// Verdict is Admitted, Trusted or Uncounted.
	Verdict Verdict

	// Rule is the name of the rule with the tightest policy, and Policy the name of
	// that, as in the RateLimit field.
	Rule, Policy string

	// Quota is what Policy allows, and Remaining what is left of it. They are zero if
	// the request is Uncounted: nobody knows.
	Quota, Remaining int64

	// ResetAt is when the quota is whole again.
	ResetAt time.Time

	// Degraded is that the Store failed: the request is Uncounted, or was counted
	// in this process alone.
	Degraded bool
}

type decisionKey struct{}

// FromContext returns the Decision on the request whose context ctx is, if
// Config.InContext is set and a rule applied. It is that of the last stage which
// decided. It does not change.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}

// putDecision puts what was decided into the context of the request, if a policy that is
// shown says something.
func (c *check) putDecision(all matched, verdict Verdict) {
	d := Decision{Verdict: verdict, Degraded: c.failed != nil || c.uncounted}
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
